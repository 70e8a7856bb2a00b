//! What a cell has left behind: its rows, and how long clients have waited.

use super::addresses::MASTER;
use super::disaster::{Disaster, Link, Place};
use super::history::Loss;
use super::injections::Injection;
use super::manual_recovery::NUMBER;
use super::operator::{Ended, Help};
use super::site::{GRACE, Site, TIMEOUT};
use super::writers::{MOVING, Record, Rows, TENANTS, Wait};
use crate::Result;
use crate::cluster::DATABASE;
use std::time::Duration;

/// The limit for answers to clients whose tenants stay, on a busy machine.
const STAYING: Duration = Duration::from_secs(3);
/// Rows of the moving tenant that no client changes, so that the copy takes a while.
pub const BULK: i32 = 600;

/// The results of a cell that are checked.
pub struct Report<'a> {
    pub site: &'a Site,
    pub disaster: Disaster,
    pub injection: &'static Injection,
    pub ended: Ended,
    pub helped: &'a [(Help, String)],
    pub records: &'a [Record; 3],
    /// Slow answers of the master.
    pub asked: &'a [Wait],
    pub losses: &'a [Loss],
    /// How long the worker was held, which is not its own fault.
    pub held: Duration,
}

impl Report<'_> {
    /// Returns the longest wait of a client of the moving tenant, or an error that lists all problems.
    pub fn longest_wait(&self) -> Result<Duration> {
        let wrong = [self.moving_waits(), self.gaps(), self.staying(), self.errors(), self.rows()?].concat();
        if !wrong.is_empty() {
            return Err(wrong.join("\n").into());
        }
        let waits = self.records[MOVING].waits.iter().filter(|wait| self.is_in_peace(wait));
        Ok(waits.map(Wait::length).max().unwrap_or_default())
    }

    fn is_in_peace(&self, wait: &Wait) -> bool {
        !self.site.addresses.was_away(wait.server, wait.from, wait.to)
    }

    fn moving_waits(&self) -> Vec<String> {
        let waits = self.records[MOVING].waits.iter().chain(self.asked);
        waits
            .filter(|wait| self.is_in_peace(wait) && wait.length() > TIMEOUT + GRACE)
            .map(|wait| format!("a client of the moving tenant waited {:?} for {}", wait.length(), wait.what))
            .collect()
    }

    /// Whether writers must be served, and not only answered: none of the servers and links that they need
    /// was struck.
    fn must_be_served(&self) -> bool {
        let spares_source =
            self.disaster.place() == Some(Place::Target) || self.disaster.link() == Some(Link::Target);
        spares_source && self.injection.is_before_decision()
    }

    fn gaps(&self) -> Vec<String> {
        if !self.must_be_served() {
            return Vec::new();
        }
        let addresses = &self.site.addresses;
        let is_away =
            |gap: &&Wait| [0, MASTER].iter().any(|server| addresses.was_away(*server, gap.from, gap.to));
        let long = self.records[MOVING].gaps.iter().filter(|gap| {
            gap.length() > TIMEOUT + GRACE + self.held && !is_away(gap) && !self.is_of_full_disk(gap)
        });
        long.map(|gap| {
            format!("a client of the moving tenant was not served for {:?}: {}", gap.length(), gap.what)
        })
        .collect()
    }

    /// Whether the full disk is the reason: the cutover has decided, and the client uses the full shard itself.
    fn is_of_full_disk(&self, gap: &Wait) -> bool {
        matches!(self.disaster, Disaster::Full(_)) && gap.what.contains("(53100)")
    }

    fn staying(&self) -> Vec<String> {
        let waits = self.records.iter().enumerate().filter(|(number, _)| *number != MOVING);
        waits
            .flat_map(|(_, record)| &record.waits)
            .filter(|wait| self.is_in_peace(wait) && wait.length() > STAYING)
            .map(|wait| format!("a client that stays waited {:?} for {}", wait.length(), wait.what))
            .collect()
    }

    /// Lists errors that do not say "retry". Clients whose tenants stay must not get any error.
    fn errors(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (record, tenant) in self.records.iter().zip(TENANTS) {
            let told = record.errors.iter().filter(|error| self.is_in_peace(error)).take(3);
            wrong.extend(
                told.map(|e| format!("a client of \"{tenant}\" was told on shard {}: {}", e.server, e.what)),
            );
        }
        wrong
    }

    /// Checks that each tenant's rows are on the shard that its route names, and nowhere else.
    fn rows(&self) -> Result<Vec<String>> {
        let route = "SELECT write_shard FROM shard_entries() WHERE key = 'moves'";
        let route: String = self.site.cluster.superuser()?.query_one(route, &[])?.get(0);
        let owner = usize::from(route == "shard_b");
        let expected = match self.ended {
            Ended::Finished => Some(1),
            Ended::RolledBack => Some(0),
            Ended::Abandoned => None,
        };
        let mut wrong = Vec::new();
        if expected.is_some_and(|expected| expected != owner) {
            wrong.push(format!("the split is {:?}, and its route leads to {route}", self.ended));
        }
        for server in [0, 1].into_iter().filter(|server| self.is_there(*server)) {
            for number in [0, 1, MOVING] {
                let home = if number == MOVING { owner } else { number };
                for table in ["items", "notes"] {
                    wrong.extend(self.table(server, table, number, home)?);
                }
            }
        }
        Ok(wrong)
    }

    /// A server that was given up as lost is not checked.
    fn is_there(&self, server: usize) -> bool {
        let gave_up = |(help, _): &(Help, String)| matches!(help, Help::TargetLost | Help::SourceLost);
        self.site.cluster.servers[server].is_running() || !self.helped.iter().any(gave_up)
    }

    fn table(&self, server: usize, table: &str, number: usize, home: usize) -> Result<Vec<String>> {
        let place = format!("{table} of \"{}\" on shard {server}", TENANTS[number]);
        let mut found = rows(self.site, server, table, TENANTS[number])?;
        let bulk = found.split_off(&1000).len();
        if server != home {
            let count = bulk + found.len();
            return Ok((count > 0)
                .then(|| format!("{place}: {count} rows that belong elsewhere"))
                .into_iter()
                .collect());
        }
        let mut wrong = self.records[number].differences(&found, self.losses);
        let expected = if number == MOVING { BULK as usize } else { 0 };
        if bulk != expected {
            wrong.push(format!("{bulk} rows that nobody has changed, not {expected}"));
        }
        Ok(wrong.into_iter().map(|what| format!("{place}: {what}")).collect())
    }
}

fn rows(site: &Site, server: usize, table: &str, tenant: &str) -> Result<Rows> {
    let query = format!("SELECT id, {NUMBER} FROM {table} WHERE tenant = $1");
    let rows = site.cluster.servers[server].superuser(DATABASE)?.query(&query, &[&tenant])?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
