//! A transaction on a shard, identified so that no other can be taken for it, and its outcome.

use super::quote::literal;

/// SQL for the server and its timeline: another server may not have what this one has.
pub const IDENTITY: &str = "(SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system()),
    pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)";

/// SQL for the position up to which its log is on its disk.
pub const FLUSHED: &str = "pg_catalog.pg_current_wal_flush_lsn()::pg_catalog.text";

/// Statements whose commit flushes everything before it in the log, including the number of the other transaction:
/// after a crash no other transaction is given that number. It waits for the disk and for standbys, also for earlier
/// commits of others.
pub const FLUSH: &str = "BEGIN READ WRITE; SET LOCAL synchronous_commit = on;
    SELECT pg_catalog.pg_current_xact_id(), pg_catalog.pg_logical_emit_message(true, 'shardmaster', ''); COMMIT";

/// Returns SQL for the status of a transaction by its number: `committed`, `aborted` or `in progress`.
pub fn status(xid: &str) -> String {
    format!("pg_catalog.pg_xact_status({}::pg_catalog.xid8)", literal(xid))
}

/// A transaction by its number, valid as long as the server is this one, has not failed over and has this much of its
/// log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub xid: String,
    pub system_identifier: String,
    pub timeline: String,
    pub flushed: String,
}

/// The outcome of a transaction, as its server reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionFate {
    Committed,
    Aborted,
    InProgress,
    /// The server has crashed before anything of it was written: it will never be committed.
    NotGiven,
    /// The transaction is too old.
    Forgotten,
    /// The server is another one, has failed over, or has an older disk.
    OtherServer,
}

impl Transaction {
    /// Returns the four columns to select on its server, for `fate`.
    pub fn columns(&self) -> String {
        let (xid, status, flushed) = (literal(&self.xid), status(&self.xid), literal(&self.flushed));
        // The status of a number that is not given out yet cannot be queried.
        format!(
            "{IDENTITY}, CASE WHEN {xid}::pg_catalog.xid8 OPERATOR(pg_catalog.<) pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())
                              THEN coalesce({status}, 'forgotten') ELSE 'not given' END,
             pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_flush_lsn(), {flushed}) OPERATOR(pg_catalog.<) 0"
        )
    }

    /// Returns the outcome, or None if the answer has another form.
    pub fn fate(&self, cells: &[Option<&str>]) -> Option<TransactionFate> {
        let [Some(system), Some(timeline), Some(status), Some(is_behind)] = cells else { return None };
        let is_it = *system == self.system_identifier && *timeline == self.timeline && *is_behind == "f";
        Some(match *status {
            _ if !is_it => TransactionFate::OtherServer,
            "committed" => TransactionFate::Committed,
            "aborted" => TransactionFate::Aborted,
            "in progress" => TransactionFate::InProgress,
            "not given" => TransactionFate::NotGiven,
            _ => TransactionFate::Forgotten,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_says_nothing_of_it() {
        let of = |text: &str| text.to_owned();
        let known = Transaction {
            xid: of("745"),
            system_identifier: of("7"),
            timeline: of("00000001"),
            flushed: of("0/1000"),
        };
        let fate = |system, timeline, status, is_behind| {
            known.fate(&[Some(system), Some(timeline), Some(status), Some(is_behind)])
        };
        for (status, is) in [
            ("committed", TransactionFate::Committed),
            ("aborted", TransactionFate::Aborted),
            ("in progress", TransactionFate::InProgress),
            ("not given", TransactionFate::NotGiven),
            ("forgotten", TransactionFate::Forgotten),
        ] {
            assert_eq!(fate("7", "00000001", status, "f"), Some(is));
            for (system, timeline, is_behind) in
                [("8", "00000001", "f"), ("7", "00000002", "f"), ("7", "00000001", "t")]
            {
                assert_eq!(fate(system, timeline, status, is_behind), Some(TransactionFate::OtherServer));
            }
        }
        assert_eq!(known.fate(&[Some("7"), Some("00000001"), None, Some("f")]), None);
        assert_eq!(known.fate(&[]), None);
    }
}
