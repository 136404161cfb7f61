package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// reports are public reports of what broke in programs of this kind: each has a test that would fail if it broke here, and
// whose comment names it by its link.
var reports = []string{
	// leases, takeover, fencing
	"https://github.com/riverqueue/river/issues/1302",
	"https://github.com/riverqueue/river/pull/1318",
	"https://github.com/speakeasy-api/gram/pull/4984",
	"https://github.com/rails/solid_queue/issues/589",
	"https://github.com/rails/solid_queue/commit/4f263b25ad40e8dc58eb9fa5de9e987c62620d2f",
	"https://github.com/rails/solid_queue/commit/629ae5559f7700084900b61eec3edb5db467f945",
	"https://github.com/oban-bg/oban/issues/862",
	"https://github.com/graphile/worker/issues/254",
	"https://github.com/graphile/worker/pull/313",
	"https://github.com/graphile/worker/issues/204",
	"https://github.com/graphile/worker/pull/374",
	"https://github.com/OneUptime/blog/pull/160",
	"https://github.com/timgit/pg-boss/issues/535",
	"https://github.com/timgit/pg-boss/commit/001a58d787b604e00bfcac0c043f0abd6c96604f",
	"https://github.com/svix/svix-webhooks/pull/2181",
	"https://github.com/InsForge/InsForge/pull/1795",
	"https://github.com/pydio/cells/pull/927",
	"https://github.com/JasperFx/wolverine/issues/565",
	"https://github.com/JasperFx/wolverine/issues/585",
	"https://github.com/JasperFx/wolverine/issues/3971",
	"https://github.com/rails/solid_queue/commit/098a0048d68596a7807b1406a13c8e76b83870d2",
	"https://github.com/rails/solid_queue/pull/778",
	"https://github.com/xavierjohn/Trellis/pull/644",
	"https://github.com/hookdeck/outpost/pull/869",
	// order, and rows that commit late
	"https://github.com/ThreeDotsLabs/watermill/issues/311",
	"https://github.com/ThreeDotsLabs/watermill/issues/576",
	"https://github.com/MassTransit/MassTransit/issues/3512",
	"https://github.com/thomhurst/Dekaf/pull/3054",
	"https://github.com/lightninglabs/wavelength/pull/435",
	"https://github.com/MartinKalema/horizontal-scaling-convex/issues/240",
	"https://github.com/MarcosRabadan/Agendia/issues/260",
	"https://github.com/namastack/namastack-outbox/issues/204",
	"https://github.com/IBM/sarama/pull/3644",
	"https://github.com/pingcap/tiflow/issues/12017",
	"https://github.com/constructorfabric/gears-rust/issues/3738",
	"https://github.com/ThreeDotsLabs/watermill-sql/pull/23",
	"https://github.com/namastack/namastack-outbox/issues/195",
	// retries, and rows that failed
	"https://github.com/qdrant/go-client/pull/153",
	"https://github.com/onosproject/onos-lib-go/pull/127",
	"https://github.com/garethgeorge/backrest/issues/618",
	"https://github.com/riverqueue/river/pull/698",
	"https://github.com/hemilabs/heminetwork/issues/664",
	"https://github.com/zarusz/SlimMessageBus/pull/475",
	"https://github.com/hookdeck/outpost/pull/600",
	"https://github.com/hookdeck/outpost/pull/957",
	"https://github.com/constructorfabric/gears-rust/pull/3782",
	"https://github.com/hookdeck/outpost/pull/670",
	"https://github.com/JasperFx/wolverine/commit/b031f8a38be5b101c7c682a7dd12f1e3637bb67d",
	"https://github.com/hatchet-dev/hatchet/pull/4619",
	"https://github.com/frain-dev/convoy/issues/1667",
	"https://github.com/JasperFx/wolverine/issues/3926",
	"https://github.com/MassTransit/MassTransit/issues/5944",
	"https://github.com/frain-dev/convoy/issues/1926",
	"https://github.com/JasperFx/wolverine/issues/3766",
	"https://github.com/svix/svix-webhooks/pull/533",
	"https://github.com/oban-bg/oban/commit/7f74dc306f98ef9880eecfc0071b20bbcd3b79de",
	// plugin processes
	"https://github.com/hashicorp/go-plugin/issues/10",
	"https://github.com/dkron-io/dkron/issues/247",
	"https://github.com/flanksource/mission-control/pull/3185",
	"https://github.com/hashicorp/go-plugin/issues/31",
	"https://github.com/raystack/optimus/issues/603",
	"https://github.com/hashicorp/go-plugin/issues/305",
	"https://github.com/hashicorp/go-plugin/issues/114",
	"https://github.com/hashicorp/go-plugin/pull/320",
	"https://github.com/hashicorp/go-plugin/pull/81",
	"https://github.com/hashicorp/nomad/issues/6715",
	"https://github.com/ConduitIO/conduit/issues/1999",
	"https://github.com/ConduitIO/conduit/issues/2559",
	"https://github.com/ConduitIO/conduit/pull/2680",
	"https://github.com/ConduitIO/conduit/pull/2707",
	"https://github.com/ConduitIO/conduit/pull/2733",
	"https://github.com/ConduitIO/conduit/issues/1852",
	// shutdown
	"https://github.com/ConduitIO/conduit/issues/2519",
	"https://github.com/pal-tamas/rask/pull/566",
	"https://github.com/dapr/dapr/issues/7258",
	"https://github.com/dapr/components-contrib/issues/4449",
	"https://github.com/riverqueue/river/pull/376",
	"https://github.com/riverqueue/river/pull/401",
	"https://github.com/xmtp/xmtpd/issues/1865",
	"https://github.com/Trendyol/go-pq-cdc/pull/149",
	"https://github.com/InditexTech/scs-outbox/pull/94",
	// cleaning, retention, receipts
	"https://github.com/riverqueue/river/issues/575",
	"https://github.com/Particular/NServiceBus.Persistence.Sql/issues/778",
	"https://github.com/JasperFx/wolverine/issues/689",
	"https://github.com/MassTransit/MassTransit/issues/6145",
	"https://github.com/pal-tamas/rask/pull/533",
	"https://github.com/hexpm/bob/pull/279",
	"https://github.com/JasperFx/wolverine/issues/4417",
	"https://github.com/JasperFx/wolverine/issues/2361",
	"https://github.com/Particular/NServiceBus/issues/3070",
	"https://github.com/Particular/NServiceBus/issues/4086",
	"https://github.com/hookdeck/outpost/pull/953",
	"https://github.com/que-rb/que/issues/297",
	"https://github.com/NikolayS/PgQue/issues/61",
}

// TestEveryReportHasATest reads the comments of all tests, and of the suites that sources and sinks must pass. Which tests
// name a report is in the log of `go test -v`.
func TestEveryReportHasATest(t *testing.T) {
	named := map[string][]string{} // link → tests
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		suite := slices.Contains([]string{"sourcetest", "sinktest"}, filepath.Base(filepath.Dir(path)))
		if filepath.Ext(path) != ".go" || !suite && !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		return linksOf(path, suite, named)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, report := range reports {
		if len(named[report]) == 0 {
			t.Errorf("no test names %s", report)
		}
		t.Logf("%s: %s", report, strings.Join(named[report], ", "))
	}
}

// linksOf adds the tests of a file under the links in their comments. In a suite every function may be one.
func linksOf(path string, suite bool, named map[string][]string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is || !suite && !strings.HasPrefix(f.Name.Name, "Test") {
			continue
		}
		for word := range strings.FieldsSeq(f.Doc.Text()) {
			if link := strings.Trim(word, ".,;:()"); strings.HasPrefix(link, "https://") {
				named[link] = append(named[link], f.Name.Name)
			}
		}
	}
	return nil
}
