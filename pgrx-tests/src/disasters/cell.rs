//! One cell: a split with clients, struck at one moment, brought to its end, and looked at.

use super::addresses::MASTER;
use super::ends;
use super::history::Loss;
use super::kinds::{Disaster, Link, Place};
use super::moments::{Moment, Stage};
use super::operator::{Ended, Help, Operator};
use super::rescue::NUMBER;
use super::site::{GRACE, Site, TIMEOUT};
use super::writers::{MOVING, Record, Rows, TENANTS, Wait, Writers};
use crate::cluster::DATABASE;
use crate::split::Split;
use crate::{Result, wait};
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

const LIMIT: Duration = Duration::from_secs(60);
/// Nobody whose tenant stays waits longer for an answer, on a machine that is busy.
const STAYING: Duration = Duration::from_secs(3);
/// Rows of the moving tenant that no client changes: a copy has something to do.
const BULK: i32 = 600;

/// What a cell has shown.
#[derive(Debug)]
pub struct Shown {
    pub ended: Ended,
    pub helped: Vec<(Help, String)>,
    /// The longest that a writer of the moving tenant has waited for an answer.
    pub longest: Duration,
    /// What the operator has seen.
    pub seen: BTreeSet<String>,
}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, longest wait {:.1} s", self.ended, self.longest.as_secs_f64())?;
        self.helped.iter().try_for_each(|(help, said)| write!(f, ", {help:?} after {said:?}"))?;
        self.seen.iter().try_for_each(|text| write!(f, "\n    seen: {text}"))
    }
}

pub fn run(disaster: Disaster, moment: &'static Moment) -> Result<Shown> {
    let mut site = Site::new(disaster)?;
    fill(&site)?;
    let writers = Writers::start(&site.addresses)?;
    let mut operator = Operator {
        site: &mut site,
        disaster,
        moment,
        split: 0,
        struck: None,
        asked: None,
        seen: BTreeSet::new(),
        helped: Vec::new(),
    };
    let outcome = play(&mut operator, &writers);
    let history = operator.history();
    let (helped, split) = (std::mem::take(&mut operator.helped), operator.split);
    let seen = std::mem::take(&mut operator.seen);
    let tell = |e: crate::Error| format!("{e}\nhelped: {helped:?}\nsplit {split}:\n{history}");
    let (ended, losses) = outcome.map_err(tell)?;
    let (records, asked) = writers.stop()?;
    require_expected(disaster, moment, &helped).map_err(tell)?;
    let longest =
        look_at(&site, disaster, moment, ended, &helped, &records, &asked, &losses).map_err(tell)?;
    Ok(Shown { ended, helped, longest, seen })
}

fn require_expected(disaster: Disaster, moment: &Moment, helped: &[(Help, String)]) -> Result<()> {
    let needed: Vec<Help> = helped.iter().map(|(help, _)| *help).collect();
    match ends::expected(disaster, moment.stage) {
        Some(end) if end.is(&needed) => Ok(()),
        end => Err(format!("needed {needed:?}, where {end:?} was expected").into()),
    }
}

fn fill(site: &Site) -> Result<()> {
    let mut source = site.cluster.servers[0].superuser(DATABASE)?;
    for (table, columns) in [("items", "i"), ("notes", "i, i")] {
        source.batch_execute(&format!(
            "INSERT INTO {table} SELECT 'moves', {columns}, '0 ' || repeat('b', 400) FROM generate_series(1001, {}) i",
            1000 + BULK
        ))?;
    }
    Ok(())
}

/// From the plan to the end; what may be lost.
fn play(operator: &mut Operator<'_>, writers: &Writers) -> Result<(Ended, Vec<Loss>)> {
    writers.wait_for(&[0, 1, 2], 5, LIMIT)?;
    walk_to(operator, writers)?;
    let struck = Instant::now();
    operator.struck = Some((SystemTime::now(), writers.number()));
    operator.site.strike()?;
    if operator.moment.is_point() {
        release(operator)?;
    }
    if !operator.disaster.forgets() {
        observe(operator);
        if operator.disaster.place() != Some(Place::Master) {
            operator.note();
        }
        operator.site.mend()?;
        let _ = operator.site.cluster.fault("");
    }
    if operator.disaster.forgets() {
        operator.site.mend()?;
    }
    let back = Instant::now();
    let ended = operator.bring_to_end()?;
    writers.wait_for(&who_goes_on(operator, ended), 5, LIMIT)?;
    Ok((ended, losses(operator, struck, back)))
}

/// Up to the moment; on the way the server that is struck gets something to forget.
fn walk_to(operator: &mut Operator<'_>, writers: &Writers) -> Result<()> {
    let (point, stage) = (operator.moment.name, operator.moment.stage);
    if stage == Stage::Planned {
        take_backup(operator, writers)?;
        return operator.plan();
    }
    operator.plan()?;
    operator.call("start_dual_write($1)")?;
    wait_for(operator, "dual_write")?;
    if stage == Stage::Copying {
        take_backup(operator, writers)?;
        operator.site.cluster.hold(point)?;
        operator.call("run_backfill($1)")?;
        return held(operator, point);
    }
    operator.call("run_backfill($1)")?;
    wait_for(operator, "cutover_pending")?;
    take_backup(operator, writers)?;
    match point {
        "tailing" => Ok(()),
        "recovery_fenced" | "recovery_caught_up" => recover_to(operator, point),
        "completed" => cut_over(operator, writers),
        _ if point.starts_with("cutover_") => hold_at(operator, point, "cutover($1)"),
        _ if point.starts_with("rollback_") => hold_at(operator, point, "rollback($1)"),
        _ => {
            cut_over(operator, writers)?;
            hold_at(operator, point, "finish($1)")
        }
    }
}

fn take_backup(operator: &mut Operator<'_>, writers: &Writers) -> Result<()> {
    operator.site.take_backup()?;
    writers.wait_for(&[0, 1, 2], 40, LIMIT)
}

fn wait_for(operator: &Operator<'_>, phase: &str) -> Result<()> {
    Split::of(&operator.site.cluster, operator.split).wait(phase, LIMIT).map(drop)
}

fn held(operator: &Operator<'_>, point: &str) -> Result<()> {
    Split::of(&operator.site.cluster, operator.split).wait_held(point, LIMIT)
}

fn hold_at(operator: &mut Operator<'_>, point: &str, call: &str) -> Result<()> {
    operator.site.cluster.hold(point)?;
    operator.call(call)?;
    held(operator, point)
}

fn cut_over(operator: &mut Operator<'_>, writers: &Writers) -> Result<()> {
    operator.call("cutover($1)")?;
    wait_for(operator, "completed")?;
    writers.wait_for(&[MOVING], 30, LIMIT)
}

/// The worker ends behind the decision, and the next one is held in what it does then.
fn recover_to(operator: &mut Operator<'_>, point: &str) -> Result<()> {
    hold_at(operator, "cutover_decided", "cutover($1)")?;
    let cluster = &operator.site.cluster;
    if point == "recovery_fenced" {
        let forget = "UPDATE shardmaster_agent.side SET state = 'capture' WHERE side = 'source'";
        cluster.servers[0].superuser(DATABASE)?.batch_execute(forget)?;
    }
    let mut master = cluster.superuser()?;
    // The next worker does not get past the target before the fault is another one.
    cluster.servers[1].hang()?;
    let end =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster split%'";
    master.batch_execute(end)?;
    let outcome = cluster.hold(point);
    cluster.servers[1].wake()?;
    outcome?;
    held(operator, point)
}

/// The worker goes on from the point. A master that hangs, or is gone, cannot be told.
fn release(operator: &Operator<'_>) -> Result<()> {
    match operator.disaster {
        Disaster::Hung(Place::Master) | Disaster::Gone(Place::Master) | Disaster::Full(Place::Master) => {
            Ok(())
        }
        _ => operator.site.cluster.fault(""),
    }
}

/// As long as a cutover may take, and what is promised beyond; where nobody can be kept
/// waiting, as long as a shard may be silent before it counts as lost.
fn observe(operator: &Operator<'_>) {
    let is_over = operator.moment.stage > Stage::Opened;
    let limit = match operator.disaster {
        Disaster::Slow(_) => return,
        _ if is_over => Duration::from_secs(3),
        _ => TIMEOUT + GRACE,
    };
    // Nothing is waited for: clients go on, and measure.
    let _ = wait::until("clients to have measured", limit, || Ok(None::<()>));
}

fn who_goes_on(operator: &Operator<'_>, ended: Ended) -> Vec<usize> {
    // The operator has left the dead server where it is.
    let lost = match (operator.disaster, ended) {
        (Disaster::Gone(Place::Target), Ended::RolledBack) => Some(1),
        (Disaster::Gone(Place::Source), Ended::Finished) if helped(&operator.helped, Help::SourceLost) => {
            Some(0)
        }
        _ => None,
    };
    [0, 1, MOVING].into_iter().filter(|number| Some(*number) != lost).collect()
}

fn helped(all: &[(Help, String)], help: Help) -> bool {
    all.iter().any(|(one, _)| *one == help)
}

fn losses(operator: &Operator<'_>, struck: Instant, back: Instant) -> Vec<Loss> {
    let place = operator.disaster.place().and_then(Place::server);
    let (Some(server), Some(since)) = (place, operator.site.forgotten_since) else { return Vec::new() };
    if helped(&operator.helped, Help::RestoreLatest) {
        // It has what it had, and not what it took in between.
        return vec![Loss { server, from: struck, to: Instant::now(), of_all: false }];
    }
    let is_gone = matches!(operator.disaster, Disaster::Gone(_));
    let brings_back = helped(&operator.helped, Help::RestoreBackup);
    if operator.disaster.forgets() || is_gone && brings_back {
        return vec![Loss { server, from: since, to: back, of_all: false }];
    }
    if is_gone {
        return vec![Loss { server, from: since, to: struck, of_all: false }];
    }
    Vec::new()
}

/// Whether writers must be served, not only answered: nobody whom they need was struck.
fn must_be_served(disaster: Disaster, moment: &Moment) -> bool {
    let spares_source =
        matches!(disaster.place(), Some(Place::Target)) || disaster.link() == Some(Link::Target);
    spares_source && moment.is_before_decision()
}

#[allow(clippy::too_many_arguments)]
fn look_at(
    site: &Site,
    disaster: Disaster,
    moment: &Moment,
    ended: Ended,
    helped: &[(Help, String)],
    records: &[Record; 3],
    asked: &[Wait],
    losses: &[Loss],
) -> Result<Duration> {
    let mut wrong = rows_are_right(site, ended, helped, records, losses)?;
    let limit = TIMEOUT + GRACE;
    let addresses = &site.addresses;
    let in_peace = |w: &&Wait| !addresses.was_away(w.server, w.from, w.to);
    let moving = &records[MOVING];
    let longest = moving.waits.iter().filter(in_peace).map(Wait::length).max().unwrap_or_default();
    for wait in moving.waits.iter().chain(asked).filter(in_peace).filter(|w| w.length() > limit) {
        wrong.push(format!("a client of the moving tenant waited {:?} for {}", wait.length(), wait.what));
    }
    if must_be_served(disaster, moment) {
        let away = |g: &Wait| addresses.was_away(0, g.from, g.to) || addresses.was_away(MASTER, g.from, g.to);
        for gap in moving.gaps.iter().filter(|g| g.length() > limit && !away(g)) {
            wrong.push(format!(
                "a client of the moving tenant was not served for {:?}: {}",
                gap.length(),
                gap.what
            ));
        }
    }
    for (number, record) in records.iter().enumerate() {
        if number != MOVING {
            for wait in record.waits.iter().filter(in_peace).filter(|w| w.length() > STAYING) {
                wrong.push(format!("a client that stays waited {:?} for {}", wait.length(), wait.what));
            }
        }
        for error in record.errors.iter().filter(in_peace).take(3) {
            wrong.push(format!(
                "a client of \"{}\" was told on shard {}: {}",
                TENANTS[number], error.server, error.what
            ));
        }
    }
    if wrong.is_empty() { Ok(longest) } else { Err(wrong.join("\n").into()) }
}

/// Each tenant's rows are on the shard that its route names, and nowhere else.
fn rows_are_right(
    site: &Site,
    ended: Ended,
    helped_by: &[(Help, String)],
    records: &[Record; 3],
    losses: &[Loss],
) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let route = "SELECT write_shard FROM shard_entries() WHERE key = 'moves'";
    let route: String = site.cluster.superuser()?.query_one(route, &[])?.get(0);
    let owner = usize::from(route == "shard_b");
    let expected = match ended {
        Ended::Finished => Some(1),
        Ended::RolledBack => Some(0),
        Ended::Abandoned => None,
    };
    if expected.is_some_and(|expected| expected != owner) {
        wrong.push(format!("the split is {ended:?}, and its route leads to {route}"));
    }
    for server in [0, 1] {
        let is_lost = !site.cluster.servers[server].is_running();
        if is_lost && (helped(helped_by, Help::TargetLost) || helped(helped_by, Help::SourceLost)) {
            continue;
        }
        for (number, record) in records.iter().enumerate() {
            let home = if number == MOVING { owner } else { number };
            for table in ["items", "notes"] {
                let mut found = rows(site, server, table, TENANTS[number])?;
                let bulk = found.split_off(&1000);
                let bulk_expected = if number == MOVING && server == home { BULK as usize } else { 0 };
                if bulk.len() != bulk_expected {
                    wrong.push(format!(
                        "{} unchanged {table} of shard {server}, not {bulk_expected}",
                        bulk.len()
                    ));
                }
                let place = format!("{table} of \"{}\" on shard {server}", TENANTS[number]);
                if server != home && !found.is_empty() {
                    wrong.push(format!("{place}: {} rows that belong elsewhere", found.len()));
                } else if server == home {
                    let differences = record.differences(&found, losses);
                    wrong.extend(differences.into_iter().map(|d| format!("{place}: {d}")));
                }
            }
        }
    }
    Ok(wrong)
}

fn rows(site: &Site, server: usize, table: &str, tenant: &str) -> Result<Rows> {
    let query = format!("SELECT id, {NUMBER} FROM {table} WHERE tenant = $1");
    let rows = site.cluster.servers[server].superuser(DATABASE)?.query(&query, &[&tenant])?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
