//! The hosts of a connection string. libpq tries the next one when a host refuses, but it leaves the handling of a
//! silent host to its caller: that host is then left out and the others are tried again.

use super::connection::to_c;
use pq_sys as pq;
use std::ffi::{CStr, c_char};
use std::time::Duration;

/// What libpq knows of its destination, with services and defaults resolved.
pub struct Hosts {
    hosts: Vec<String>,
    addresses: Vec<String>,
    ports: Vec<String>,
    /// The timeout of each host. `None` if the string sets none.
    pub timeout: Option<Duration>,
}

/// The current host of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Current {
    host: String,
    port: String,
}

impl Current {
    /// # Safety
    /// The connection is live.
    pub unsafe fn of(raw: *mut pq::PGconn) -> Current {
        let text = |text: *const c_char| {
            if text.is_null() {
                String::new()
            } else {
                // SAFETY: this is libpq's own text, NUL-terminated.
                unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
            }
        };
        // SAFETY: the caller keeps the promise above.
        unsafe { Current { host: text(pq::PQhost(raw)), port: text(pq::PQport(raw)) } }
    }

    /// Returns the host for messages.
    pub fn text(&self) -> String {
        format!("{} port {}", self.host, self.port)
    }
}

impl Hosts {
    /// # Safety
    /// The connection is live, whether begun or not.
    pub unsafe fn of(raw: *mut pq::PGconn) -> Hosts {
        let list = |text: Option<String>| -> Vec<String> {
            text.filter(|t| !t.is_empty()).map_or(Vec::new(), |t| t.split(',').map(str::to_owned).collect())
        };
        // SAFETY: the caller keeps the promise above.
        let get = |keyword| unsafe { option(raw, keyword) };
        let seconds = get("connect_timeout").and_then(|t| t.trim().parse::<u64>().ok());
        Hosts {
            hosts: list(get("host")),
            addresses: list(get("hostaddr")),
            ports: list(get("port")),
            // As in libpq, 0 means none, and less than two seconds means two.
            timeout: seconds.filter(|s| *s > 0).map(|s| Duration::from_secs(s.max(2))),
        }
    }

    /// Returns the parameters that name all hosts but one, or None if no other is left.
    pub fn without(&self, silent: &Current) -> Option<Vec<(&'static str, String)>> {
        let count = self.hosts.len().max(self.addresses.len());
        let at = |list: &[String], index: usize| list.get(index).cloned().unwrap_or_default();
        let port = |index: usize| match self.ports.as_slice() {
            [one] => one.clone(),
            many => at(many, index),
        };
        let is_silent = |index: usize| {
            let (host, address) = (at(&self.hosts, index), at(&self.addresses, index));
            (host == silent.host || host.is_empty() && address == silent.host)
                && (port(index) == silent.port || port(index).is_empty())
        };
        let left: Vec<usize> = (0..count).filter(|index| !is_silent(*index)).collect();
        if left.is_empty() || left.len() == count {
            return None;
        }
        let join = |item: &dyn Fn(usize) -> String| {
            left.iter().map(|index| item(*index)).collect::<Vec<_>>().join(",")
        };
        let mut params = vec![("port", join(&port))];
        if !self.hosts.is_empty() {
            params.push(("host", join(&|index| at(&self.hosts, index))));
        }
        if !self.addresses.is_empty() {
            params.push(("hostaddr", join(&|index| at(&self.addresses, index))));
        }
        Some(params)
    }
}

/// # Safety
/// The connection is live.
unsafe fn option(raw: *mut pq::PGconn, keyword: &str) -> Option<String> {
    let keyword = to_c(keyword);
    // SAFETY: the caller keeps the promise above; the list ends with an entry without a keyword, and its strings live
    // until it is freed, once.
    unsafe {
        let options = pq::PQconninfo(raw);
        if options.is_null() {
            return None;
        }
        let mut found = None;
        let mut option = options;
        while !(*option).keyword.is_null() {
            if CStr::from_ptr((*option).keyword) == keyword.as_c_str() && !(*option).val.is_null() {
                found = Some(CStr::from_ptr((*option).val).to_string_lossy().into_owned());
            }
            option = option.add(1);
        }
        pq::PQconninfoFree(options);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(hosts: &str, addresses: &str, ports: &str) -> Hosts {
        let list = |text: &str| match text {
            "" => Vec::new(),
            text => text.split(',').map(str::to_owned).collect(),
        };
        Hosts { hosts: list(hosts), addresses: list(addresses), ports: list(ports), timeout: None }
    }

    fn at(host: &str, port: &str) -> Current {
        Current { host: host.into(), port: port.into() }
    }

    #[test]
    fn the_silent_host_is_left_out_with_its_port() {
        let left = hosts("a,b,c", "", "1,2,3").without(&at("b", "2"));
        assert_eq!(left, Some(vec![("port", "1,3".into()), ("host", "a,c".into())]));
    }

    #[test]
    fn one_port_is_for_all() {
        let left = hosts("a,b", "", "5432").without(&at("a", "5432"));
        assert_eq!(left, Some(vec![("port", "5432".into()), ("host", "b".into())]));
    }

    #[test]
    fn one_host_on_two_ports_is_two() {
        let left = hosts("a,a", "", "1,2").without(&at("a", "1"));
        assert_eq!(left, Some(vec![("port", "2".into()), ("host", "a".into())]));
    }

    #[test]
    fn addresses_stand_for_hosts() {
        let left = hosts("", "10.0.0.1,10.0.0.2", "").without(&at("10.0.0.1", "5432"));
        assert_eq!(left, Some(vec![("port", String::new()), ("hostaddr", "10.0.0.2".into())]));
    }

    #[test]
    fn where_nobody_else_is_left_nobody_is_asked() {
        assert_eq!(hosts("a", "", "1").without(&at("a", "1")), None);
        assert_eq!(hosts("a,b", "", "1").without(&at("c", "1")), None);
    }
}
