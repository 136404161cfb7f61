package webhook

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/connectd/connectd/sinks/webhook/egress"
)

// usualPorts are those that a row's URL may have when ssrf.allow_ports does not say.
var usualPorts = []int{80, 443, 8080, 8443}

// guard is what keeps requests away from hosts, ports and addresses; nil when everything goes.
func (c *config) guard() *egress.Guard {
	s := &c.SSRF
	if !c.guarded() && !(c.hostVaries() && len(s.AllowHosts) > 0) {
		return nil
	}
	rules := egress.Rules{AllowHosts: s.AllowHosts, AllowPorts: s.AllowPorts}
	for _, p := range s.AllowCIDRs {
		rules.AllowCIDRs = append(rules.AllowCIDRs, netip.Prefix(p))
	}
	for _, p := range s.DenyCIDRs {
		rules.DenyCIDRs = append(rules.DenyCIDRs, netip.Prefix(p))
	}
	if !c.guarded() { // only the hosts are listed: their addresses do not matter
		rules.AllowCIDRs = append(rules.AllowCIDRs, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
	}
	// A port that the setting url has is the operator's choice, and no row's.
	if port, err := strconv.Atoi(c.target.port); err == nil && len(s.AllowPorts) == 0 && !slices.Contains(usualPorts, port) {
		rules.AllowPorts = append(slices.Clone(usualPorts), port)
	}
	return egress.NewGuard(rules)
}
