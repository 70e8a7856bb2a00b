package shardmaster

import (
	"fmt"
	"strings"
)

// What libpq does with these, drivers do in a way of their own, or not at all: none of them says whom
// to trust. They would take them for settings of the server.
var droppedSettings = map[string]bool{
	"keepalives": true, "keepalives_count": true, "keepalives_idle": true, "keepalives_interval": true,
	"load_balance_hosts": true, "ssl_max_protocol_version": true, "sslcompression": true,
	"sslnegotiation": true, "sslsni": true, "tcp_user_timeout": true,
}

// The same with these values. With others a session would be less than what was asked for.
var heldAnyway = map[string][]string{
	"channel_binding":          {"disable", "prefer"},
	"gssencmode":               {"disable", "prefer"},
	"require_auth":             {},
	"ssl_min_protocol_version": {"TLSv1", "TLSv1.1", "TLSv1.2"}, // Go has no older one than the last
}

// isForDriver says whether a driver is to see a setting.
func isForDriver(key, value string) (bool, error) {
	if key == "hostaddr" || droppedSettings[key] {
		return false, nil
	}
	held, known := heldAnyway[key]
	if !known {
		return true, nil
	}
	for _, one := range append(held, "") {
		if one == value {
			return false, nil
		}
	}
	return false, fmt.Errorf("shardmaster: no driver in Go can do %s=%s", key, quoted(value))
}

// ForDriver returns a connection string of libpq, as routes have them, without what drivers in Go do
// not know, and the addresses of hosts, by their names: libpq does not look up the name of a host
// with a hostaddr, but checks certificates by it. A URI is left as it is.
func ForDriver(conninfo string) (string, map[string]string, error) {
	if strings.HasPrefix(conninfo, "postgres://") || strings.HasPrefix(conninfo, "postgresql://") {
		return conninfo, nil, nil
	}
	settings, order, err := settingsOf(conninfo)
	if err != nil {
		return "", nil, err
	}
	addresses := map[string]string{}
	if hostaddr := settings["hostaddr"]; hostaddr != "" {
		if settings["host"] == "" {
			settings["host"] = hostaddr
			order = append(order, "host")
		}
		hosts, addrs := strings.Split(settings["host"], ","), strings.Split(hostaddr, ",")
		if len(hosts) != len(addrs) {
			return "", nil, fmt.Errorf("shardmaster: %d hosts with %d addresses", len(hosts), len(addrs))
		}
		for i, host := range hosts {
			if other, ok := addresses[host]; ok && other != addrs[i] {
				return "", nil, fmt.Errorf("shardmaster: host %q with two addresses", host)
			}
			addresses[host] = addrs[i]
		}
	}
	pairs := []string{}
	for _, key := range order {
		isWanted, err := isForDriver(key, settings[key])
		if err != nil {
			return "", nil, err
		}
		if isWanted {
			pairs = append(pairs, key+"="+quoted(settings[key]))
		}
	}
	return strings.Join(pairs, " "), addresses, nil
}

func quoted(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}

const blanks = " \t\n\r\v\f"

// settingsOf reads what libpq reads: key = value, or key = 'va\'lue'. Of a key that is named twice the
// last value counts. It returns the keys in their order, too.
func settingsOf(conninfo string) (map[string]string, []string, error) {
	settings, order := map[string]string{}, []string{}
	for rest := strings.TrimLeft(conninfo, blanks); rest != ""; rest = strings.TrimLeft(rest, blanks) {
		key, after, ok := strings.Cut(rest, "=")
		key = strings.TrimRight(key, blanks)
		if !ok || key == "" || strings.ContainsAny(key, blanks) {
			// It may have a password.
			return nil, nil, fmt.Errorf("shardmaster: setting %d of a connection string has no value", len(order)+1)
		}
		var value string
		if value, rest, ok = valueOf(strings.TrimLeft(after, blanks)); !ok {
			return nil, nil, fmt.Errorf("shardmaster: %s of a connection string has no end", key)
		}
		if _, known := settings[key]; !known {
			order = append(order, key)
		}
		settings[key] = value
	}
	return settings, order, nil
}

// valueOf returns the value that a text begins with, and what is behind it.
func valueOf(text string) (value, rest string, ok bool) {
	isQuoted := strings.HasPrefix(text, "'")
	start := 0
	if isQuoted {
		start = 1
	}
	said := strings.Builder{}
	for i := start; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			said.WriteByte(text[i])
		case isQuoted && c == '\'':
			return said.String(), text[i+1:], true
		case !isQuoted && strings.IndexByte(blanks, c) >= 0:
			return said.String(), text[i:], true
		case c != '\\':
			said.WriteByte(c)
		}
	}
	return said.String(), "", !isQuoted
}
