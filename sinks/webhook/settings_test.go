package webhook

import (
	"fmt"
	"strings"
	"testing"
)

const signingKey = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// TestSettings gives, for each mistake, where the diagnostic points and a word of it; "warn" before it is for a warning.
func TestSettings(t *testing.T) {
	const url = `"url":"https://example.com/hook"`
	secrets := func(list string) string { return `{` + url + `,"signing":{"secrets":[` + list + `]}}` }
	for settings, want := range map[string]string{
		`{` + url + `}`: "",
		`{}`:            "/url required",

		// url
		`{"url":"example.com"}`:                          "/url begin with http",
		`{"url":"ftp://example.com"}`:                    "/url begin with http",
		`{"url":"HTTP://example.com"}`:                   "/url begin with http",
		`{"url":"http://"}`:                              "/url host",
		`{"url":"http:///x"}`:                            "/url host",
		`{"url":"https://user:hunter2@example.com/"}`:    "/url user info",
		`{"url":"https://{key}@example.com/"}`:           "/url user info",
		`{"url":"https://example.com/#x"}`:               "/url fragment",
		`{"url":"https://example.com/a b"}`:              "/url percent-encode",
		`{"url":"https://exämple.com/"}`:                 "/url punycode",
		`{"url":"https://example.com:0/"}`:               "/url port",
		`{"url":"https://example.com:/"}`:                "/url port",
		`{"url":"https://{key}.example.com:{type}/"}`:    "/url port",
		`{"url":"https://example.com:70000/"}`:           "/url port",
		`{"url":"https://example.com/a/../b"}`:           "/url ..",
		`{"url":"https://example.com/%2e%2E/b"}`:         "/url ..",
		`{"url":"https://example.com/100%"}`:             "/url percent",
		`{"url":"https://example.com/{id}/100%"}`:        "/url percent",
		`{"url":"https://example.com/{{x}}/{id}"}`:       "/url percent",
		`{"url":"https://example.com/{topic}"}`:          "/url no known field",
		`{"url":"https://example.com/{id"}`:              "/url without its }",
		`{"url":"https://-{key}.example.com/"}`:          "/url no host name",
		`{"url":"{connector}"}`:                          "/url begin with http",
		`{"url":"https://{connector}.example.com/"}`:     "",
		`{"url":"https://example.com/{header:x|a/b?#}"}`: "",
		`{"url":"https://example.com?{id}"}`:             "",
		`{"url":"https://[::1]:8443/{id}"}`:              "",
		`{"url":"http://user_service:8080/"}`:            "",
		`{"url":"{route}"}`:                              "",
		`{"url":"{header:callback}"}`:                    "",

		// headers
		`{` + url + `,"headers":{"X-A":"k={key}","x-b":"{header:none}"}}`:                                     "",
		`{` + url + `,"headers":{"X A":"1"}}`:                                                                 "/headers/X A no name",
		`{` + url + `,"headers":{"":"1"}}`:                                                                    "/headers/ no name",
		`{` + url + `,"headers":{"X~/A":"1"}}`:                                                                "/headers/X~0~1A no name",
		`{` + url + `,"headers":{"X-A":"1","x-a":"2"}}`:                                                       "/headers/x-a twice",
		`{` + url + `,"headers":{"X-A":"a\r\nX-B: b"}}`:                                                       "/headers/X-A printable",
		`{` + url + `,"headers":{"X-A":" a"}}`:                                                                "/headers/X-A printable",
		`{` + url + `,"headers":{"X-A":"é"}}`:                                                                 "/headers/X-A printable",
		`{` + url + `,"headers":{"X-A":"{nope}"}}`:                                                            "/headers/X-A no known field",
		`{` + url + `,"headers":{"Host":"x"}}`:                                                                "/headers/Host connection",
		`{` + url + `,"headers":{"content-length":"1"}}`:                                                      "/headers/content-length connection",
		`{` + url + `,"headers":{"Transfer-Encoding":"x"}}`:                                                   "/headers/Transfer-Encoding connection",
		`{` + url + `,"headers":{"Connection":"x"}}`:                                                          "/headers/Connection connection",
		`{` + url + `,"headers":{"Content-Type":"x"}}`:                                                        "/headers/Content-Type content_type",
		`{` + url + `,"headers":{"user-agent":"x"}}`:                                                          "/headers/user-agent user_agent",
		`{` + url + `,"headers":{"Webhook-Id":"x"}}`:                                                          "/headers/Webhook-Id signature",
		`{` + url + `,"headers":{"webhook-signature":"x"}}`:                                                   "/headers/webhook-signature signature",
		`{` + url + `,"headers":{"Svix-Id":"x"}}`:                                                             "",
		`{` + url + `,"headers":{"Svix-Id":"x"},"signing":{"header_prefix":"svix-"}}`:                         "/headers/Svix-Id signature",
		`{` + url + `,"headers":{"Connectd-X":"x"}}`:                                                          "/headers/Connectd-X connectd",
		`{` + url + `,"headers":{"Ce-Id":"x"}}`:                                                               "",
		`{` + url + `,"headers":{"Ce-Id":"x"},"body":"ce_binary"}`:                                            "/headers/Ce-Id CloudEvent",
		`{` + url + `,"headers":{"Idempotency-Key":"x"},"idempotency_header":{}}`:                             "/headers/Idempotency-Key idempotency",
		`{` + url + `,"headers":{"Authorization":"x"}}`:                                                       "",
		`{` + url + `,"headers":{"Authorization":"x"},"auth":{"type":"basic","username":"u","password":"p"}}`: "/headers/Authorization auth",

		// forward_headers
		`{` + url + `,"forward_headers":["*"]}`:                         "",
		`{` + url + `,"forward_headers":[]}`:                            "",
		`{` + url + `,"forward_headers":["a","*"]}`:                     "/forward_headers/1 alone",
		`{` + url + `,"forward_headers":["a b"]}`:                       "/forward_headers/0 no name",
		`{` + url + `,"forward_headers":["host"]}`:                      "/forward_headers/0 connection",
		`{` + url + `,"forward_headers":["content-type"]}`:              "/forward_headers/0 need not",
		`{` + url + `,"forward_headers":["x-a"],"headers":{"X-A":"1"}}`: "/forward_headers/0 in headers too",

		// body
		`{` + url + `,"body":"template"}`:                                                 "/body_template required",
		`{` + url + `,"body_template":"x"}`:                                               "/body_template is for body template",
		`{` + url + `,"body":"template","body_template":"{{.ID"}`:                         "/body_template cannot be read",
		`{` + url + `,"body":"template","body_template":"{{nope .ID}}"}`:                  "/body_template nope",
		`{` + url + `,"body":"template","body_template":"{{.Id}}"}`:                       "/body_template no record has",
		`{` + url + `,"body":"template","body_template":"{{.JSON.a}}{{$.Id}}"}`:           "/body_template no record has",
		`{` + url + `,"body":"template","body_template":"{{with .JSON.a}}{{.b}}{{end}}"}`: "",
		`{` + url + `,"body":"template","body_template":"{{.JSON.a.b}}"}`:                 "",
		`{` + url + `,"body":"template","body_template":"{{.Headers.a}}"}`:                "",
		`{` + url + `,"body":"template","body_template":"{{lower 1}}"}`:                   "/body_template sample",
		`{` + url + `,"body":"template","body_template":"{{upper}}"}`:                     "/body_template sample",
		`{` + url + `,"body":"template","body_template":"xxxxx","max_body_bytes":4}`:      "/body_template larger",
		`{` + url + `,"content_type":"json"}`:                                             "",
		`{` + url + `,"content_type":"a;;"}`:                                              "/content_type media type",
		`{` + url + `,"content_type":"a/b\r\nX: y"}`:                                      "/content_type media type",
		`{` + url + `,"user_agent":"a\nb"}`:                                               "/user_agent printable",
		`{` + url + `,"max_body_bytes":0}`:                                                "/max_body_bytes 1 to",
		`{` + url + `,"body":"ce_structured","cloudevents":{"source":"a b"}}`:             "/cloudevents/source URI",
		`{` + url + `,"body":"ce_binary","cloudevents":{"source":""}}`:                    "/cloudevents/source URI",
		`{` + url + `,"cloudevents":{"source":"/shop"}}`:                                  "/cloudevents no effect",
		`{` + url + `,"body":"ce_batch","cloudevents":{"type":"{nope}"}}`:                 "/cloudevents/type no known field",
		`{` + url + `,"body":"ce_structured","cloudevents":{"type":""}}`:                  " without an id, a source or a type",

		// batch
		`{` + url + `,"batch":{}}`:                                       "",
		`{` + url + `,"body":"ce_batch"}`:                                "",
		`{` + url + `,"batch":{},"body":"template","body_template":"x"}`: "/batch body of one record",
		`{` + url + `,"batch":{},"body":"ce_binary"}`:                    "/batch body of one record",
		`{` + url + `,"batch":{"format":"json"},"body":"ce_batch"}`:      "/batch/format own",
		`{` + url + `,"batch":{"max_rows":0}}`:                           "/batch/max_rows 1 to",
		`{` + url + `,"batch":{"per_row_results":""}}`:                   "",
		`{` + url + `,"batch":{"per_row_results":"results"}}`:            "/batch/per_row_results pointer",
		`{` + url + `,"batch":{"per_row_results":"/a~2"}}`:               "/batch/per_row_results tilde",
		`{"url":"https://example.com/{type}","batch":{}}`:                "/url several rows",
		`{"url":"https://example.com/{connector}","batch":{}}`:           "",
		`{` + url + `,"batch":{},"headers":{"X-A":"{key}"}}`:             "/headers/X-A several rows",

		// signing
		secrets(`{"value":"` + signingKey + `"}`):                                    "",
		secrets(`{"file":"secret"}`):                                                 "",
		secrets(`{}`):                                                                "/signing/secrets/0/value required",
		secrets(`{"value":"` + signingKey + `","file":"x"}`):                         "/signing/secrets/0/file beside value",
		secrets(`{"value":"hunter2"}`):                                               "/signing/secrets/0/value begin with",
		secrets(`{"value":"whsec_hunter2"}`):                                         "/signing/secrets/0/value base64",
		secrets(`{"value":"` + signingKey + `","not_after":"2030-01-01T00:00:00Z"}`): "/signing/secrets/0/not_after current",
		secrets(`{"value":"` + signingKey + `"},{"value":"` + signingKey + `","not_after":"soon"}`):                         "/signing/secrets/1/not_after RFC 3339",
		secrets(`{"value":"` + signingKey + `"},{"value":"` + signingKey + `","not_after":"2020-01-01T00:00:00Z"}`):         "warn /signing/secrets/1/not_after passed",
		`{` + url + `,"signing":{"scheme":"standard"}}`:                                                                     "/signing/secrets required",
		`{` + url + `,"signing":{"scheme":"none","secrets":[{"value":"` + signingKey + `"}]}}`:                              "/signing/secrets no effect",
		`{` + url + `,"signing":{"scheme":"github","secrets":[{"value":"0123456789abcdef"},{"value":"0123456789abcdef"}]}}`: "/signing/secrets/1 one signature",
		`{` + url + `,"signing":{"scheme":"stripe","secrets":[{"value":"hunter2"}]}}`:                                       "warn /signing/secrets/0/value guessed",
		`{` + url + `,"signing":{"header_prefix":"svix"}}`:                                                                  "/signing/header_prefix dash",
		`{` + url + `,"signing":{"header_prefix":""}}`:                                                                      "/signing/header_prefix dash",
		`{` + url + `,"signing":{"header_prefix":"connectd-"}}`:                                                             "/signing/header_prefix another meaning",
		`{` + url + `,"idempotency_header":{"name":"Host"}}`:                                                                "/idempotency_header/name connection",
		`{` + url + `,"idempotency_header":{"name":"a b"}}`:                                                                 "/idempotency_header/name name of a header",

		// auth
		`{` + url + `,"auth":{}}`:                                                                                      "/auth/type required",
		`{` + url + `,"auth":{"type":"digest"}}`:                                                                       "/auth/type one of",
		`{` + url + `,"auth":{"type":"basic","username":"u"}}`:                                                         "/auth/password required",
		`{` + url + `,"auth":{"type":"basic","username":"u:","password":"p"}}`:                                         "/auth/username colon",
		`{` + url + `,"auth":{"type":"basic","username":"u","password":"p","token":"hunter2"}}`:                        "/auth/token not for",
		`{` + url + `,"auth":{"type":"bearer"}}`:                                                                       "/auth/token or auth.file",
		`{` + url + `,"auth":{"type":"bearer","token":"a","file":"b"}}`:                                                "/auth/file beside",
		`{` + url + `,"auth":{"type":"bearer","token":"hunter2\n"}}`:                                                   "/auth/token header cannot hold",
		`{` + url + `,"auth":{"type":"header","name":"X-Api-Key","value":"v"}}`:                                        "",
		`{` + url + `,"auth":{"type":"header","name":"Host","value":"v"}}`:                                             "/auth/name connection",
		`{` + url + `,"auth":{"type":"header","name":"x y","value":"v"}}`:                                              "/auth/name name of a header",
		`{` + url + `,"auth":{"type":"oauth2","client_id":"a","client_secret":"b"}}`:                                   "/auth/token_url required",
		`{` + url + `,"auth":{"type":"oauth2","token_url":"x","client_id":"a","client_secret":"b"}}`:                   "/auth/token_url http",
		`{` + url + `,"auth":{"type":"oauth2","token_url":"http://a/t","client_id":"a","client_secret":"b"}}`:          "warn /auth/token_url read",
		`{` + url + `,"auth":{"type":"sigv4","region":"r","service":"s","access_key_id":"a"}}`:                         "/auth/secret_access_key required",
		`{` + url + `,"auth":{"type":"sigv4","region":"r","service":"s","access_key_id":"a","secret_access_key":"k"}}`: "",

		// connections
		`{` + url + `,"tls":{"cert_file":"a"}}`:                                           "/tls/key_file required",
		`{` + url + `,"tls":{"key_file":"a"}}`:                                            "/tls/cert_file required",
		`{` + url + `,"tls":{"cert_file":"a","key_file":"b","min_version":"1.3"}}`:        "",
		`{` + url + `,"tls":{"min_version":"1.1"}}`:                                       "/tls/min_version one of",
		`{` + url + `,"tls":{"insecure_skip_verify":true}}`:                               "warn /tls/insecure_skip_verify change requests",
		`{"url":"http://localhost/","tls":{"ca_file":"a"}}`:                               "warn /tls no effect",
		`{` + url + `,"timeouts":{"total":"1s","connect":"2s","tls":"2s","header":"2s"}}`: "/timeouts/connect above; /timeouts/tls above; /timeouts/header above",
		`{` + url + `,"timeouts":{"total":"1s"}}`:                                         "",
		`{"url":"https://{header:tenant.example.com/"}`:                                   "/url character 9",
		`{"url":"https://example.com/{id}/{"}`:                                            "/url character 26",
		`{` + url + `,"signing":{"secrets":[]}}`:                                          "/signing/secrets empty",
		`{` + url + `,"timeouts":{"total":20}}`:                                           "/timeouts/total unit",
		`{` + url + `,"proxy_url":"hunter2"}`:                                             "/proxy_url HTTP proxy",
		`{` + url + `,"proxy_url":"http://u:hunter2@proxy:3128"}`:                         "",
		`{"url":"{route}","proxy_url":"http://proxy:3128"}`:                               "warn /proxy_url must filter",
		`{` + url + `,"follow_redirects":"same_host_307_308"}`:                            "warn /follow_redirects signed",
		`{` + url + `,"breaker":{}}`:                                                      "warn /breaker no effect",
		`{"url":"https://{key}.example.com","breaker":{"open_for":"5s"}}`:                 "",
		`{` + url + `,"rate_limit":{"rate":"100/s"}}`:                                     "",
		`{` + url + `,"rate_limit":{"rate":"5/10s","burst":2}}`:                           "",
		`{` + url + `,"rate_limit":{"rate":"100"}}`:                                       "/rate_limit/rate requests in a time",
		`{` + url + `,"rate_limit":{"rate":"0/s"}}`:                                       "/rate_limit/rate requests in a time",
		`{` + url + `,"rate_limit":{"rate":"1/fortnight"}}`:                               "/rate_limit/rate requests in a time",
		`{` + url + `,"rate_limit":{}}`:                                                   "/rate_limit/rate required",
		`{` + url + `,"concurrency":0}`:                                                   "/concurrency 1 to",
		`{` + url + `,"capture":{"headers":["x y"]}}`:                                     "/capture/headers/0 name of a header",

		// ssrf
		`{"url":"https://{key}.example.com/","ssrf":{"mode":"off"}}`:                        "/ssrf/mode allow_hosts",
		`{"url":"{route}","ssrf":{"mode":"off"}}`:                                           "/ssrf/mode allow_hosts",
		`{"url":"{route}","ssrf":{"mode":"off","allow_hosts":["*.example.com"]}}`:           "",
		`{` + url + `,"ssrf":{"mode":"off"}}`:                                               "",
		`{` + url + `,"ssrf":{"allow_cidrs":["10.0.0.0/8"]}}`:                               "warn /ssrf no effect",
		`{` + url + `,"ssrf":{"mode":"on","deny_cidrs":["10.0.0.0/8","::1"]}}`:              "",
		`{` + url + `,"ssrf":{"mode":"on","deny_cidrs":["10.0.0.0/33"]}}`:                   "/ssrf/deny_cidrs/0 prefix",
		`{` + url + `,"ssrf":{"mode":"on","allow_hosts":["https://x"]}}`:                    "/ssrf/allow_hosts/0 host",
		`{` + url + `,"ssrf":{"mode":"on","allow_hosts":["other.example.com"]}}`:            "/url not among the allowed",
		`{` + url + `,"ssrf":{"mode":"on","allow_ports":[0]}}`:                              "/ssrf/allow_ports/0 1 to 65535",
		`{"url":"http://127.0.0.1:9000/","ssrf":{"mode":"on"}}`:                             "/url loopback",
		`{"url":"http://127.0.0.1:9000/","ssrf":{"mode":"on","allow_cidrs":["127.0.0.1"]}}`: "",
		`{"url":"https://{key}.example.com:9443/","ssrf":{"allow_ports":[443]}}`:            "/url ssrf.allow_ports",

		// http
		`{"url":"http://example.com/"}`: "",
		`{"url":"{route}","auth":{"type":"basic","username":"u","password":"p"},"headers":{"X-Api-Key":"k","X-Token":"{key}","X-Env":"live"}}`: "warn /auth allow_hosts; warn /headers/X-Api-Key allow_hosts",
		`{"url":"https://{key}.com/","auth":{"type":"basic","username":"u","password":"p"}}`:                                                   "warn /auth allow_hosts",
		`{"url":"https://{key}.example.com/","auth":{"type":"basic","username":"u","password":"p"}}`:                                           "",
		`{"url":"{route}","ssrf":{"allow_hosts":["a.example"]},"auth":{"type":"basic","username":"u","password":"p"}}`:                         "",
		`{"url":"http://example.com/","auth":{"type":"basic","username":"u","password":"p"}}`:                                                  "warn /url auth",
		`{"url":"http://localhost:1/","auth":{"type":"basic","username":"u","password":"p"}}`:                                                  "",
		`{"url":"http://[::1]:1/","auth":{"type":"basic","username":"u","password":"p"}}`:                                                      "",
		`{"url":"http://{key}.example.com/","signing":{"secrets":[{"value":"` + signingKey + `"}]}}`:                                           "warn /url signature",

		// statuses
		`{` + url + `,"success_status":["2xx","409"],"retry_status":["404"],"permanent_status":["410-419"],"throttle_status":["420"]}`: "",
		`{` + url + `,"success_status":["2xx","409"],"receipt":"on_2xx"}`:                                                              "warn /success_status/1 no receipt",
		`{` + url + `,"success_status":["200-204"],"receipt":"on_2xx"}`:                                                                "",
		`{` + url + `,"success_status":["409"],"receipt":"none"}`:                                                                      "",
		`{` + url + `,"receipt":"always"}`:                                                                                             "/receipt on_2xx",
		`{` + url + `,"success_status":["302"]}`:                                                                                       "/success_status/0 3xx",
		`{` + url + `,"success_status":["1xx"]}`:                                                                                       "/success_status/0 1xx",
		`{` + url + `,"success_status":["2xx-3xx"]}`:                                                                                   "/success_status/0 status codes",
		`{` + url + `,"retry_status":["500-400"]}`:                                                                                     "/retry_status/0 status codes",
		`{` + url + `,"success_status":[200,"202"],"retry_status":[404]}`:                                                              "",
		`{` + url + `,"retry_status":[99]}`:                                                                                            "/retry_status/0 status codes",
		`{` + url + `,"retry_status":["99"]}`:                                                                                          "/retry_status/0 status codes",
		`{` + url + `,"retry_status":["404"],"permanent_status":["400-410"]}`:                                                          "/permanent_status/0 in retry_status too",
		`{` + url + `,"permanent_status":["4xx"],"throttle_status":["429"]}`:                                                           "/throttle_status/0 in permanent_status too",
	} {
		checkDiagnostics(t, settings, want)
	}
}

func checkDiagnostics(t *testing.T, settings, want string) {
	t.Helper()
	_, diagnostics := parse([]byte(settings), Options{Connector: "orders", Dir: "/base", Version: "1.2.3"})
	var wants []string
	if want != "" {
		wants = strings.Split(want, "; ")
	}
	if len(diagnostics) != len(wants) {
		t.Errorf("%s: %+v, want %q", settings, diagnostics, want)
		return
	}
	for i, d := range diagnostics {
		rest, warning := strings.CutPrefix(wants[i], "warn ")
		pointer := d.Pointer
		if !strings.HasPrefix(rest, pointer+" ") || d.Warning != warning || !strings.Contains(d.Message, rest[len(pointer)+1:]) {
			t.Errorf("%s: %+v, want %q", settings, d, wants[i])
		}
		if strings.Contains(fmt.Sprint(d), "hunter2") {
			t.Errorf("%s: the diagnostic shows a secret: %+v", settings, d)
		}
	}
}
