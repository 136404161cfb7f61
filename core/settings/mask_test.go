package settings

import "testing"

func TestMask(t *testing.T) {
	type inner struct {
		Pass Secret `json:"pass"`
	}
	in := &struct {
		Token  Secret            `json:"token"`
		Longer Secret            `json:"longer"`
		Empty  Secret            `json:"empty"`
		Inner  *inner            `json:"inner"`
		Absent *inner            `json:"absent"`
		List   []Secret          `json:"list"`
		Map    map[string]Secret `json:"map"`
		User   string            `json:"user"`
		hidden Secret
	}{
		Token: NewSecret("hunter"), Longer: NewSecret("hunter2"), Inner: &inner{NewSecret("s3cret")},
		List: []Secret{NewSecret("first"), NewSecret("second")}, Map: map[string]Secret{"a": NewSecret("mapped")},
		User: "ada", hidden: NewSecret("unexported"),
	}
	_ = in.hidden
	for text, want := range map[string]string{
		"":                               "",
		"nothing to hide, said ada":      "nothing to hide, said ada",
		"http://x/?k=hunter2&t=hunter":   "http://x/?k=***&t=***",
		"s3cret first second mapped end": "*** *** *** *** end",
		"unexported":                     "unexported",
	} {
		if got := Mask(text, in); got != want {
			t.Errorf("Mask(%q) = %q, want %q", text, got, want)
		}
		if got := Mask(text, *in); got != want {
			t.Errorf("Mask(%q) of a value = %q, want %q", text, got, want)
		}
	}
	if got := Mask("as it is", nil); got != "as it is" {
		t.Errorf("Mask without settings = %q", got)
	}
}
