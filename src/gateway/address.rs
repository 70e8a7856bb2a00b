//! Addresses of services. They become part of a gateway's configuration, so they contain only the characters of
//! addresses.

use crate::error::{Failure, invalid};

/// An address: `host:port`, `[address]:port`, or `unix:/path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Address> {
        let valid = match text.strip_prefix("unix:") {
            Some(path) => path.starts_with('/') && path.bytes().all(is_of_path),
            None => is_host_and_port(text),
        };
        valid.then(|| Address(text.to_owned()))
    }

    /// Parses the replicas of a service, separated by commas.
    pub fn parse_list(text: &str) -> Result<Vec<Address>, Failure> {
        let parse = |part: &str| Address::parse(part.trim()).ok_or_else(|| wrong("address", part.trim()));
        text.split(',').map(parse).collect()
    }

    /// Parses where a gateway listens: an address, or a port of all addresses.
    pub fn parse_listen(text: &str) -> Result<Address, Failure> {
        let anywhere = text.strip_prefix("*:").unwrap_or(text);
        if is_port(anywhere) {
            return Ok(Address(text.to_owned()));
        }
        Address::parse(text).ok_or_else(|| wrong("listen", text))
    }
}

fn wrong(argument: &str, text: &str) -> Failure {
    let problem = format!("\"{text}\" is not an address");
    invalid(argument, problem)
        .hint("Write host:port, [address]:port or unix:/path; several replicas with commas.")
}

fn is_of_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/._-".contains(&byte)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        }
    };
    is_host && is_port(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_they_are_and_nothing_more() {
        for good in ["10.0.0.1:80", "service-a.example:8080", "[::1]:80", "unix:/run/a_b.sock"] {
            assert_eq!(Address::parse(good), Some(Address(good.to_owned())), "{good}");
        }
        let bad = [
            "",
            "a",
            "a:",
            ":1",
            "a:0",
            "a:65536",
            "a:+1",
            "a b:1",
            "a;:1",
            "::1:80",
            "[x]:1",
            "unix:run",
            "unix:/a;b",
        ];
        for bad in bad {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn replicas_are_separated_by_commas() {
        assert_eq!(Address::parse_list("a:1, b:2").map_err(|e| e.message).unwrap().len(), 2);
        assert!(Address::parse_list("a:1,").is_err());
        assert!(Address::parse_list("").is_err());
    }

    #[test]
    fn a_gateway_may_listen_on_a_port_alone() {
        for good in ["8080", "*:8080", "127.0.0.1:80", "unix:/run/gateway.sock"] {
            assert!(Address::parse_listen(good).is_ok(), "{good}");
        }
        assert!(Address::parse_listen("80; }").is_err());
    }
}
