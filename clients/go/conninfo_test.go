package shardmaster

import (
	"fmt"
	"strings"
	"testing"
)

func TestForDriver(t *testing.T) {
	for conninfo, wanted := range map[string]string{
		"":                         "",
		" host = a  port=5432 ":    "host='a' port='5432'",
		"host=a host=b":            "host='b'",
		`dbname='it\'s' user=a\ b`: `dbname='it\'s' user='a b'`,
		`dbname=a\\b`:              `dbname='a\\b'`,
		"user='' dbname=x":         "user='' dbname='x'",
		"user= dbname=x":           "user='dbname=x'",
		"host=a tcp_user_timeout=9 keepalives=1 sslmode=verify-full":                              "host='a' sslmode='verify-full'",
		"host=a channel_binding=prefer require_auth='' sslsni=1 ssl_min_protocol_version=TLSv1.2": "host='a'",
		"host=a hostaddr=10.0.0.1":          "host='a' a=10.0.0.1",
		"hostaddr=10.0.0.1 port=1":          "port='1' host='10.0.0.1' 10.0.0.1=10.0.0.1",
		"host=a,b hostaddr=1.1.1.1,2.2.2.2": "host='a,b' a=1.1.1.1 b=2.2.2.2",
		"postgresql://a/b?hostaddr=c":       "postgresql://a/b?hostaddr=c",
	} {
		text, addresses, err := ForDriver(conninfo)
		if err != nil {
			t.Errorf("%s: %v", conninfo, err)
		}
		for _, host := range []string{"a", "b", "10.0.0.1"} {
			if addresses[host] != "" {
				text += fmt.Sprintf(" %s=%s", host, addresses[host])
			}
		}
		if text != wanted {
			t.Errorf("%s: %s, not %s", conninfo, text, wanted)
		}
	}
}

func TestForDriverRefuses(t *testing.T) {
	for _, conninfo := range []string{
		"host", "=a", "host=a secret", "user='secret", "a b=c",
		"channel_binding=require", "require_auth=scram-sha-256", "ssl_min_protocol_version=TLSv1.3",
		"host=a,b hostaddr=1.1.1.1", "host=a,a hostaddr=1.1.1.1,2.2.2.2",
	} {
		_, _, err := ForDriver(conninfo)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", conninfo, err)
		}
	}
}
