//! Where a shard's rows are, whatever its name and however its address is written. Two addresses that are written
//! differently may lead to one database. What workers have read there shows that two databases differ; only the
//! servers can show that two are one, since copies of a disk share all that a database knows of itself.

use crate::catalog::shard;
use crate::catalog::shard::Shard;
use crate::remote::conninfo::Conninfo;
use crate::server::sql;

/// What the master knows of two places without asking a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sameness {
    Same,
    Different,
    /// The addresses are written differently, and are not known to be two: one server, or both, must be asked.
    Unknown,
}

/// Keywords that determine the server and the database that a connection string leads to.
const LEADS_TO: [&str; 6] =
    ["host", "hostaddr", "port", "dbname", "target_session_attrs", "load_balance_hosts"];
/// The port of a connection string that names none.
const DEFAULT_PORT: &str = "5432";

/// Whether two connection strings lead to one database by their texts alone. Neither text contains what a service, the
/// environment or the user's name fill in.
fn is_one_address(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let (Ok(one), Ok(other)) = (Conninfo::parse(one), Conninfo::parse(other)) else { return false };
    let says_all = |conninfo: &Conninfo| {
        conninfo.host().is_some() && conninfo.get("dbname").is_some() && conninfo.get("service").is_none()
    };
    let value = |conninfo: &Conninfo, keyword: &str| match (keyword, conninfo.get(keyword)) {
        ("port", None) => DEFAULT_PORT.to_owned(),
        (_, value) => value.unwrap_or_default().to_owned(),
    };
    says_all(&one)
        && says_all(&other)
        && LEADS_TO.iter().all(|keyword| value(&one, keyword) == value(&other, keyword))
}

/// Whether two shards are in one database.
pub fn database(one: &Shard, other: &Shard) -> Sameness {
    match (&one.conninfo, &other.conninfo) {
        (None, None) => return Sameness::Same,
        (Some(here), Some(there)) if is_one_address(here, there) => return Sameness::Same,
        _ => {}
    }
    match (identity_of_late(one), identity_of_late(other)) {
        (Some(here), Some(there)) if here != there => Sameness::Different,
        _ => Sameness::Unknown,
    }
}

/// Whether two shards are one namespace of one database.
pub fn compare(one: &Shard, other: &Shard) -> Sameness {
    if one.namespace != other.namespace { Sameness::Different } else { database(one, other) }
}

/// Returns all other shards that are in the same database as this one, or may be.
pub fn in_database(one: &Shard) -> Vec<(Shard, Sameness)> {
    let all = shard::all().into_iter().filter(Shard::holds_rows);
    all.map(|other| (database(one, &other), other))
        .filter(|(sameness, _)| *sameness != Sameness::Different)
        .map(|(sameness, other)| (other, sameness))
        .collect()
}

/// Returns the namespaces of other shards with the same connection string.
pub fn namespaces_beside(shard: &Shard) -> Vec<String> {
    sql::read_column(
        "SELECT DISTINCT namespace FROM shardmaster.shard
          WHERE conninfo IS NOT DISTINCT FROM $1 AND namespace <> $2 AND kind = $3",
        &[shard.conninfo.clone().into(), shard.namespace.as_str().into(), shard.kind.as_str().into()],
    )
}

/// SQL query: the identity of a database, as one text.
pub const ITSELF: &str = "SELECT pg_catalog.concat_ws('/', c.system_identifier, d.oid)
   FROM pg_catalog.pg_control_system() c, pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()";

/// Whether a shard is a schema of this very database, by any address, as far as a worker has learned it. A copy of its
/// disk counts, too.
pub fn is_known_here(shard: &Shard) -> bool {
    shard.conninfo.is_none() || identity(shard).is_some_and(|there| Some(there) == own_identity())
}

/// Returns the identity of this database.
pub fn own_identity() -> Option<String> {
    sql::read_optional(ITSELF, &[])
}

/// Returns the identity that a worker has last read there.
fn identity(shard: &Shard) -> Option<String> {
    identity_not_older(shard, None)
}

/// Returns the identity if a worker has read it just now. By the next day an address may lead to another server, and a
/// caller that relied on an older identity would never ask again.
fn identity_of_late(shard: &Shard) -> Option<String> {
    identity_not_older(shard, Some("1 minute"))
}

/// Returns the identity if it is not older than `than`; None accepts any age.
fn identity_not_older(shard: &Shard, than: Option<&str>) -> Option<String> {
    match &shard.conninfo {
        None => own_identity(),
        Some(conninfo) => sql::read_one(
            "SELECT identity FROM shardmaster.database_identity
              WHERE conninfo = $1 AND ($2 IS NULL OR learned_at >= clock_timestamp() - $2::interval)",
            &[conninfo.as_str().into(), than.into()],
            |row| row.value(1),
        ),
    }
}

/// Stores the identity that a worker has read. If the write is lost, it is learned again, so no disk and no standby is
/// waited for.
pub fn learned(shard: &Shard, now: &str) {
    let Some(conninfo) = &shard.conninfo else { return };
    if identity_not_older(shard, Some("20 seconds")).as_deref() == Some(now) {
        return;
    }
    sql::write("SET LOCAL synchronous_commit = off", &[]);
    sql::write(
        "INSERT INTO shardmaster.database_identity AS known (conninfo, identity) VALUES ($1, $2)
         ON CONFLICT (conninfo) DO UPDATE SET identity = EXCLUDED.identity, learned_at = clock_timestamp()",
        &[conninfo.as_str().into(), now.into()],
    );
}

/// Forgets addresses that no shard has.
pub fn forget_unused() {
    sql::write(
        "DELETE FROM shardmaster.database_identity i
          WHERE NOT EXISTS (SELECT 1 FROM shardmaster.shard s WHERE s.conninfo = i.conninfo)",
        &[],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_is_known_by_what_it_says() {
        let same = [
            ("service=x", "service=x"),
            ("host=a dbname=d user=u", "dbname=d host=a port=5432 connect_timeout=7"),
            ("host=a,b port=1,2 dbname=d", "postgresql://a:1,b:2/d"),
        ];
        for (one, other) in same {
            assert!(is_one_address(one, other), "{one} {other}");
        }
    }

    #[test]
    fn what_is_left_open_may_be_two_addresses() {
        let open = [
            // An omitted database name is the user's name.
            ("host=a user=u", "host=a user=v"),
            ("service=a dbname=d", "host=a dbname=d"),
            ("service=a dbname=d user=u", "service=a dbname=d"),
            ("host=a hostaddr=10.0.0.1 dbname=d", "host=a hostaddr=10.0.0.2 dbname=d"),
            ("host=a,b dbname=d target_session_attrs=primary", "host=a,b dbname=d"),
            ("host=a dbname=d", "host=a dbname=d port=5433"),
            ("host=a dbname=d", "host=A dbname=d"),
        ];
        for (one, other) in open {
            assert!(!is_one_address(one, other), "{one} {other}");
        }
    }
}
