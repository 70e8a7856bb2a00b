//! The endpoint of a shard, when it is added and later on.

use super::authentication;
use crate::catalog::caller::Caller;
use crate::catalog::database_location;
use crate::catalog::database_location::Sameness;
use crate::catalog::endpoint::{self, Endpoint};
use crate::catalog::reference;
use crate::catalog::shard::{self, POSTGRES, Shard, TopologyError};
use crate::catalog::{event, execution};
use crate::catalog::{guard_record, in_use};
use crate::catalog::{misplaced_run, name};
use crate::error::{Failure, invalid, warn};
use crate::remote::conninfo::Conninfo;
use crate::remote::quote::literal;
use crate::server::wake;

/// The kind of an endpoint that names no other.
const LIBPQ: &str = "libpq";

/// What a caller has given. A field that is `None` stays as it is; an empty text removes an optional value.
#[derive(Debug, Default)]
pub struct GivenEndpoint {
    pub conninfo: Option<String>,
    pub client_conninfo: Option<String>,
    pub read_conninfo: Option<String>,
    pub host: Option<String>,
    pub port: Option<i32>,
    pub database: Option<String>,
    pub username: Option<String>,
    /// More keywords of libpq, as a connection string.
    pub options: Option<String>,
    pub uri: Option<String>,
    pub auth_kind: Option<String>,
    pub credential_alias: Option<String>,
    pub notes: Option<String>,
}

impl GivenEndpoint {
    fn has_parts(&self) -> bool {
        let texts = [&self.host, &self.database, &self.username, &self.options];
        self.port.is_some() || texts.iter().any(|text| text.is_some())
    }

    /// Whether it results in a connection string, which only superusers may set. An empty string of the mover leads to
    /// the database of the server's account; an empty string for clients removes theirs.
    fn leads_somewhere(&self) -> bool {
        let of_clients = [&self.client_conninfo, &self.read_conninfo];
        self.has_parts()
            || self.conninfo.is_some()
            || of_clients.iter().any(|text| text.as_deref().is_some_and(|text| !text.is_empty()))
    }

    /// Returns the connection string that results from the earlier one.
    fn conninfo_after(&self, before: Option<&str>) -> Result<Option<String>, Failure> {
        let before = self.conninfo.as_deref().or(before);
        if !self.has_parts() {
            return Ok(before.map(str::to_owned));
        }
        let mut after = Conninfo::parse(before.unwrap_or_default())?;
        if let Some(options) = &self.options {
            for (keyword, value) in Conninfo::parse_without_secret(options)?.pairs() {
                after = after.with(keyword, value);
            }
        }
        let port = self.port.map(|port| port.to_string());
        let parts =
            [("host", &self.host), ("port", &port), ("dbname", &self.database), ("user", &self.username)];
        for (keyword, value) in parts {
            if let Some(value) = value {
                after = after.with(keyword, value);
            }
        }
        Ok(Some(after.text()))
    }

    /// Returns the kind that results: a credential brings its own kind; without a credential there is none.
    fn auth_kind_after(&self, kind: &str, before: &str) -> Result<String, Failure> {
        Ok(match (&self.auth_kind, self.credential_alias.as_deref()) {
            (Some(given), _) => given.clone(),
            (None, Some("")) => LIBPQ.to_owned(),
            (None, Some(alias)) if kind == POSTGRES => authentication::kind_of(alias)?.name.to_owned(),
            (None, _) => before.to_owned(),
        })
    }

    /// Returns the endpoint that results for a shard of some kind.
    pub fn applied_to(&self, kind: &str, before: &Endpoint) -> Result<Endpoint, Failure> {
        let text = |given: &Option<String>, before: &Option<String>| {
            given.clone().or_else(|| before.clone()).filter(|text| !text.is_empty())
        };
        Ok(Endpoint {
            conninfo: self.conninfo_after(before.conninfo.as_deref())?,
            client_conninfo: text(&self.client_conninfo, &before.client_conninfo),
            read_conninfo: text(&self.read_conninfo, &before.read_conninfo),
            uri: text(&self.uri, &before.uri),
            auth_kind: self.auth_kind_after(kind, &before.auth_kind)?,
            credential_alias: text(&self.credential_alias, &before.credential_alias),
            notes: text(&self.notes, &before.notes),
        })
    }
}

/// Returns the endpoint of a shard for which nothing was configured yet.
pub fn none() -> Endpoint {
    Endpoint {
        conninfo: None,
        client_conninfo: None,
        read_conninfo: None,
        uri: None,
        auth_kind: LIBPQ.to_owned(),
        credential_alias: None,
        notes: None,
    }
}

/// Sets where a shard is from now on: the next session goes there, those of splits at their next step.
pub fn set(shard_key: &str, given: &GivenEndpoint, caller: &Caller) -> Result<(), Failure> {
    let shard = shard::by_key(shard_key)?;
    let before = endpoint::lock(&shard).unwrap_or_else(none);
    let after = given.applied_to(&shard.kind, &before)?;
    if before.conninfo.is_some() != after.conninfo.is_some() && shard.kind == POSTGRES {
        return Err(TopologyError::Here(shard.shard_key).into());
    }
    require_right(&shard.kind, given, caller)?;
    require_valid(&shard.kind, &after)?;
    if after == before {
        return Ok(());
    }
    if after.conninfo != before.conninfo {
        require_not_held(&shard.shard_key)?;
    }
    endpoint::store(&shard, &after);
    if after.conninfo != before.conninfo {
        reference::nothing_is_there(None, &shard.shard_key);
        let at = |said: &Endpoint| Shard { conninfo: said.conninfo.clone(), ..shard.clone() };
        if database_location::database(&at(&before), &at(&after)) != Sameness::Same {
            guard_record::moved(&shard.shard_key).iter().for_each(|keyspace| not_known(&shard, keyspace));
        }
    }
    changed(&shard);
    Ok(())
}

/// Warns that the new address may have an older state, including the list of a guard.
fn not_known(shard: &Shard, keyspace: &str) {
    let text = format!(
        "shard \"{}\" may have another guard of keyspace \"{keyspace}\" there, or none",
        shard.shard_key
    );
    warn(
        text,
        format!(
            "CALL shard_guard_install({}, {}) lists there what is routed to it. Until then keys that are not on the list there are refused.",
            literal(&shard.shard_key),
            literal(keyspace)
        ),
    );
}

/// Requires that rows are neither copied to the shard nor from it, and that nothing is prepared there.
pub fn require_not_held(shard_key: &str) -> Result<(), TopologyError> {
    if let Some(execution) = execution::open_on(shard_key) {
        return Err(TopologyError::InExecution { shard: shard_key.to_owned(), execution });
    }
    match misplaced_run::of_shard(shard_key) {
        Some(run) => Err(TopologyError::InRun { shard: shard_key.to_owned(), run }),
        None => Ok(()),
    }
}

/// Notifies all that depend on the shard.
pub fn changed(shard: &Shard) {
    database_location::forget_unused();
    event::topology_changed();
    in_use::splits_of_shard(&shard.shard_key).into_iter().for_each(wake::split_on_commit);
}

/// Requires a superuser, as dblink and postgres_fdw do, for a connection string without a password, since none is
/// stored here, and for what the mover shows a server of itself.
pub fn require_right(kind: &str, given: &GivenEndpoint, caller: &Caller) -> Result<(), Failure> {
    let shows = kind == POSTGRES && (given.auth_kind.is_some() || given.credential_alias.is_some());
    if (shows || given.leads_somewhere()) && !caller.is_superuser() {
        Err(TopologyError::ConninfoOfSuperusers.into())
    } else {
        Ok(())
    }
}

pub fn require_valid(kind: &str, endpoint: &Endpoint) -> Result<(), Failure> {
    let strings = [&endpoint.conninfo, &endpoint.client_conninfo, &endpoint.read_conninfo];
    let mut given = strings.into_iter().flatten().peekable();
    if kind != POSTGRES && given.peek().is_some() {
        return Err(TopologyError::ConninfoOfOtherKind(kind.to_owned()).into());
    }
    for text in given {
        Conninfo::parse_without_secret(text)?;
    }
    if kind == POSTGRES && endpoint.uri.is_some() {
        return Err(invalid("uri", "a shard of kind \"postgres\" needs a connection string"));
    }
    let alias = &endpoint.credential_alias;
    let problems = [
        ("uri", endpoint.uri.as_deref().and_then(name::problem_of_uri)),
        ("credential_alias", alias.as_deref().and_then(name::problem)),
    ];
    for (argument, problem) in problems {
        if let Some(problem) = problem {
            return Err(invalid(argument, problem));
        }
    }
    authentication::require(kind, endpoint)
}

/// Splits a list of connection strings at semicolons. A semicolon within quotes is part of a value, like a quote after
/// a backslash.
pub fn split_list(list: &str) -> Result<Vec<String>, Failure> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let (mut is_quoted, mut is_escaped) = (false, false);
    for character in list.chars() {
        match character {
            ';' if !is_quoted => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            '\'' if !is_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        is_escaped = character == '\\' && !is_escaped;
        part.push(character);
    }
    if is_quoted {
        return Err(invalid("list", "a quote is not closed"));
    }
    parts.push(part);
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_outside_of_quotes() {
        let split = |list| split_list(list).unwrap();
        assert_eq!(split("host=a;host=b ;"), ["host=a", "host=b ", ""]);
        assert_eq!(split(r"dbname='a;b' host=x;host='it\'s;'"), [r"dbname='a;b' host=x", r"host='it\'s;'"]);
        assert_eq!(split("postgresql://a/x;postgresql://b/y"), ["postgresql://a/x", "postgresql://b/y"]);
        assert!(split_list("host='a;b").is_err());
    }
}
