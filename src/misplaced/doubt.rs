//! Rows that had come to the right shard when a run was interrupted, before they had left the wrong one. Clients may have deleted or
//! changed them since at the right shard, so they are never inserted there again: they are only deleted at the wrong one.

use super::batch::make_stage;
use super::error::MisplacedError;
use super::lot::Lot;
use super::pair::Pair;
use super::session::{Sees, Session};
use super::statements;
use super::unit::Unit;
use crate::catalog::misplaced_doubt::{Arrived, Doubt};
use crate::error::Failure;
use crate::remote::RemoteError;
use crate::remote::copy::{self, Bounds};
use crate::remote::quote::literal;
use std::time::Duration;

/// Which server this is, and since which take-over.
const IDENTITY: &str = "(SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system()),
    pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)";

/// Of the transaction that is open there.
pub fn transaction(there: &mut Session) -> Result<Arrived, Failure> {
    let found = there
        .connection
        .run(&format!("SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text, {IDENTITY}"))?;
    let cells: Vec<&str> = found.rows.iter().flatten().flatten().map(String::as_str).collect();
    let [xid, system, timeline] = cells.as_slice() else {
        return Err(RemoteError::unreadable(there.connection.shard(), "its transaction").into());
    };
    Ok(Arrived {
        xid: (*xid).to_owned(),
        system_identifier: (*system).to_owned(),
        timeline: (*timeline).to_owned(),
    })
}

pub struct Settling<'a> {
    pub lot: &'a Lot,
    pub doubt: &'a Doubt,
    pub timeout: Duration,
}

impl Settling<'_> {
    /// Its sessions are gone, so the transaction has come to its end.
    pub fn run(&self, here: &mut Session, there: &mut Session) -> Result<(), Failure> {
        here.patient_for(self.timeout);
        there.patient_for(self.timeout);
        let fate = self.fate(there)?;
        if fate.as_deref() == Some("aborted") {
            return Ok(());
        }
        let mut is_left = false;
        for (pair, _) in self.pairs() {
            let found = here.connection.run(&statements::exists(pair, &self.doubt.keys))?;
            is_left = is_left || found.scalar() != Some("f");
        }
        match fate.as_deref() {
            _ if !is_left => Ok(()),
            Some("committed") => self.take_away(here, there),
            _ => self.refuse(&self.doubt.tables[0].0, there),
        }
    }

    /// None: the server is another one, or does not know any more.
    fn fate(&self, there: &mut Session) -> Result<Option<String>, Failure> {
        let arrived = &self.doubt.arrived;
        let xid = format!("{}::pg_catalog.xid8", literal(&arrived.xid));
        let found = there.connection.run(&format!(
            "SELECT CASE WHEN {xid} OPERATOR(pg_catalog.<) pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())
                         THEN pg_catalog.pg_xact_status({xid}) ELSE 'aborted' END, {IDENTITY}"
        ))?;
        match found.rows.first().map(Vec::as_slice) {
            Some([status, Some(system), Some(timeline)]) => {
                let is_it = *system == arrived.system_identifier && *timeline == arrived.timeline;
                Ok(status.clone().filter(|_| is_it))
            }
            _ => {
                Err(RemoteError::unreadable(there.connection.shard(), "what has become of a transaction")
                    .into())
            }
        }
    }

    /// Those that refer to others first, with how many have come.
    fn pairs(&self) -> Vec<(&Pair, u64)> {
        let tables = self.lot.units.iter().flat_map(|unit: &Unit| unit.tables.iter().rev());
        let pairs = tables.map(|position| &self.lot.pairs[*position]);
        let come = |pair: &Pair| {
            self.doubt.tables.iter().find(|(name, _)| *name == pair.name).map(|(_, rows)| *rows)
        };
        pairs.filter_map(|pair| come(pair).map(|rows| (pair, rows))).collect()
    }

    /// The right shard says which rows have come by the transaction. All of them are there as they have come, or it is not known
    /// which ones somebody has deleted.
    fn take_away(&self, here: &mut Session, there: &mut Session) -> Result<(), Failure> {
        let facts = [Some(&self.lot.here), self.lot.there.as_ref()];
        for (session, facts) in [&mut *here, &mut *there].into_iter().zip(facts.into_iter().flatten()) {
            if session.begin(&facts.names, Sees::Latest, self.timeout)? != facts.seen {
                return Err(MisplacedError::Changed(session.shard.shard_key.clone()).into());
            }
            let as_application = session.as_application();
            session.connection.run(&as_application)?;
        }
        for (pair, rows) in self.pairs() {
            here.connection.run(&statements::make_arrived(pair))?;
            let (out, into) =
                (statements::arrived(pair, &self.doubt.arrived.xid), statements::fill_arrived(pair));
            self.pipe(pair, [&out, &into], there, here)?;
            let found = here.connection.run(&statements::count_arrived(pair))?;
            if found.scalar() != Some(rows.to_string().as_str()) {
                return self.refuse(&pair.name, there);
            }
            make_stage(there, pair)?;
            let (out, into) =
                (statements::take_arrived(pair, &self.doubt.keys), statements::fill_stage(pair));
            self.pipe(pair, [&out, &into], here, there)?;
            there.connection.run(&statements::drop_equal(pair, &self.doubt.keys))?;
            if there.connection.run(&statements::is_staged(pair))?.scalar() != Some("f") {
                return self.refuse(&pair.name, there);
            }
        }
        here.connection.run("SET CONSTRAINTS ALL IMMEDIATE")?;
        // What has been seen there outlives a crash.
        there.commit()?;
        here.commit()
    }

    fn pipe(
        &self,
        pair: &Pair,
        [out, into]: [&str; 2],
        from: &mut Session,
        to: &mut Session,
    ) -> Result<(), Failure> {
        copy::pipe(&mut from.connection, out, &mut to.connection, into, Bounds::unlimited())
            .map(drop)
            .map_err(|error| error.of_table(&pair.name).into())
    }

    fn refuse(&self, table: &str, there: &Session) -> Result<(), Failure> {
        let (table, shard) = (table.to_owned(), there.shard.shard_key.clone());
        Err(MisplacedError::Doubtful { run: self.doubt.run, table, shard }.into())
    }
}
