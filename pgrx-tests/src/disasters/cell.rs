//! One cell: a split with clients is struck at one injection, brought to its end, and checked.

use super::approach;
use super::disaster::{Disaster, Place};
use super::expected_ends;
use super::history::Loss;
use super::injections::{Injection, SplitStage};
use super::operator::{Ended, Help, Operator};
use super::report::{BULK, Report};
use super::site::{GRACE, Site, TIMEOUT};
use super::writers::{MOVING, Writers};
use crate::cluster::DATABASE;
use crate::{Result, wait};
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

const LIMIT: Duration = Duration::from_secs(180);
/// The pause between two writes of a client.
const PACE: Duration = Duration::from_millis(10);
/// The pause when many clusters wait beside each other for a long time.
const PACE_OF_LONG: Duration = Duration::from_millis(300);

/// The results of a cell.
#[derive(Debug)]
pub struct CellResult {
    pub ended: Ended,
    pub helped: Vec<(Help, String)>,
    /// The longest time that a writer of the moving tenant has waited for an answer.
    pub longest: Duration,
    /// The errors and reasons to wait that the operator has seen.
    pub seen: BTreeSet<String>,
}

impl std::fmt::Display for CellResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, longest wait {:.1} s", self.ended, self.longest.as_secs_f64())?;
        self.helped.iter().try_for_each(|(help, said)| write!(f, ", {help:?} after {said:?}"))?;
        self.seen.iter().try_for_each(|text| write!(f, "\n    seen: {text}"))
    }
}

pub fn run(disaster: Disaster, injection: &'static Injection) -> Result<CellResult> {
    run_for(disaster, injection, None)
}

/// Runs a cell whose disaster is over after some time.
pub fn run_for(
    disaster: Disaster,
    injection: &'static Injection,
    outage: Option<Duration>,
) -> Result<CellResult> {
    let mut site = Site::new(disaster)?;
    fill(&site)?;
    let is_long = outage.is_some_and(|outage| outage > Duration::from_secs(60));
    let writers = Writers::start(&site.addresses, if is_long { PACE_OF_LONG } else { PACE })?;
    let mut operator = Operator {
        site: &mut site,
        disaster,
        injection,
        split: 0,
        struck: None,
        held: Duration::ZERO,
        seen: BTreeSet::new(),
        helped: Vec::new(),
    };
    let outcome = play(&mut operator, &writers, outage);
    let history = operator.history();
    let (helped, split) = (std::mem::take(&mut operator.helped), operator.split);
    let (mut seen, held) = (std::mem::take(&mut operator.seen), operator.held);
    let tell = |e: crate::Error| format!("{e}\nhelped: {helped:?}\nsplit {split}:\n{history}");
    let (ended, losses) = outcome.map_err(tell)?;
    let (records, asked) = writers.stop()?;
    require_expected(disaster, injection, &helped).map_err(tell)?;
    let report = Report {
        site: &site,
        disaster,
        injection,
        ended,
        helped: &helped,
        records: &records,
        asked: &asked,
        losses: &losses,
        held,
    };
    if let Disaster::Full(place) = disaster {
        let log = std::fs::read_to_string(site.server(place).log_path())?;
        seen.insert(format!("{} times no room", log.matches("No space left on device").count()));
    }
    let longest = report.longest_wait().map_err(tell)?;
    Ok(CellResult { ended, helped, longest, seen })
}

fn require_expected(disaster: Disaster, injection: &Injection, helped: &[(Help, String)]) -> Result<()> {
    // While it is being restored, a server may be reachable without its database.
    let is_restoring = |help: &Help| matches!(disaster, Disaster::Dump(_)) && *help == Help::Resume;
    // To reach that point, the source has lost its fence. It accepted clients' writes until it was fenced again.
    let had_no_fence = |help: &Help| injection.name == "recovery_fenced" && *help == Help::BringOver;
    let is_its_own = |help: &Help| is_restoring(help) || had_no_fence(help);
    let needed: Vec<Help> = helped.iter().map(|(help, _)| *help).filter(|help| !is_its_own(help)).collect();
    match expected_ends::expected(disaster, injection.stage) {
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

/// Runs the split from the plan to its end. Returns the writes that may be lost.
fn play(
    operator: &mut Operator<'_>,
    writers: &Writers,
    outage: Option<Duration>,
) -> Result<(Ended, Vec<Loss>)> {
    writers.wait_for(&[0, 1, 2], 5, LIMIT)?;
    approach::to_injection(operator, writers)?;
    let struck = Instant::now();
    operator.struck = Some((SystemTime::now(), writers.number()));
    operator.site.strike()?;
    if operator.injection.is_point() {
        release(operator)?;
    }
    operator.held = struck.elapsed();
    if !operator.disaster.forgets() {
        observe(operator, outage);
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

/// Lets the worker continue from the point. A master that hangs or is gone cannot be told.
fn release(operator: &Operator<'_>) -> Result<()> {
    match operator.disaster {
        Disaster::Hung(Place::Master) | Disaster::Gone(Place::Master) | Disaster::Full(Place::Master) => {
            Ok(())
        }
        _ => operator.site.cluster.fault(""),
    }
}

/// Lets clients measure for as long as a cutover may take, with the grace that is promised. If no cutover can
/// keep clients waiting, this is as long as a shard may be silent before it counts as lost.
fn observe(operator: &Operator<'_>, outage: Option<Duration>) {
    let is_over = operator.injection.stage > SplitStage::Opened;
    let limit = match (operator.disaster, outage) {
        (_, Some(outage)) => outage,
        (Disaster::Slow(_), None) => return,
        _ if is_over => Duration::from_secs(3),
        // This is longer than the promise, so that a wait of the whole time is noticed.
        _ => TIMEOUT + GRACE + GRACE,
    };
    // This waits for nothing, while the clients continue and measure.
    let _ = wait::until("clients to have measured", limit, || Ok(None::<()>));
}

fn who_goes_on(operator: &Operator<'_>, ended: Ended) -> Vec<usize> {
    // The operator has not replaced the dead server.
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
        // The server has what it had when disaster struck, and not what was written since.
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
