//! How each cell must end.

use super::disaster::Disaster::{self, *};
use super::disaster::{Link, Place};
use super::injections::SplitStage;
use super::operator::Help;

/// The help that a cell needs to reach its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedEnd {
    /// The operator just makes the next calls, and requests an aborted cutover again.
    Itself,
    /// The split stops with an error that names the problem, and this call helps.
    Told(Help),
    /// One of several calls helps, or none is needed, depending on the injection within the stage.
    Among(&'static [Help]),
    /// This call helps, or none is needed, depending on whether a client wrote while the shard was open for a
    /// short time.
    Either(Help),
}

use ExpectedEnd::*;

const ADOPT: ExpectedEnd = Told(Help::Adopt);
const LATEST: ExpectedEnd = Told(Help::RestoreLatest);
/// Finish begins again with the tables that it can still prove.
const REST_S: ExpectedEnd = Among(&[Help::BringOver, Help::RestoreLatest]);
const REST_T: ExpectedEnd = LATEST;
const STRAY: ExpectedEnd = Either(Help::BringOver);
const BACKUP: ExpectedEnd = Told(Help::RestoreBackup);
const T_LOST: ExpectedEnd = Told(Help::TargetLost);
const S_LOST: ExpectedEnd = Told(Help::SourceLost);
/// The shards may have nothing by which they recognise their master.
const UNKNOWN: ExpectedEnd = Either(Help::Adopt);
const ANEW: ExpectedEnd = Told(Help::NewMaster);
const AGAIN: ExpectedEnd = Among(&[Help::Again, Help::ByHand]);
const HAND: ExpectedEnd = Either(Help::ByHand);
const ROOM: ExpectedEnd = Either(Help::Resume);
/// A short name, so that the table fits on a page.
const WELL: ExpectedEnd = Itself;

/// In the order of `SplitStage`.
type Row = [ExpectedEnd; 12];

/// One row for each disaster, one column for each stage of a split.
#[rustfmt::skip]
pub const ENDS: &[(Disaster, Row)] = &[
    //                       planned copying tailing closing fenced  decided opened  completed finishing purged ended   rolling back
    (Hung(Place::Source),    [WELL; 12]),
    (Hung(Place::Target),    [WELL; 12]),
    (Hung(Place::Master),    [WELL; 12]),
    (Silent(Link::Source),   [WELL; 12]),
    (Silent(Link::Target),   [WELL; 12]),
    (OneLost(Link::Source),  [WELL; 12]),
    (OneLost(Link::Target),  [WELL; 12]),
    (Cut(Link::Source),      [WELL; 12]),
    (Cut(Link::Target),      [WELL; 12]),
    (Slow(Link::Source),     [WELL; 12]),
    (Slow(Link::Target),     [WELL; 12]),
    (Disk(Place::Source),    [WELL,   WELL,   WELL,   WELL,   WELL,   STRAY,  STRAY,  STRAY,  STRAY,  REST_S, LATEST, WELL]),
    (Disk(Place::Target),    [WELL,   WELL,   WELL,   WELL,   WELL,   WELL,   WELL,   WELL,   LATEST, REST_T, LATEST, WELL]),
    (Disk(Place::Master),    [WELL; 12]),
    (Standby(Place::Source), [WELL,   WELL,   WELL,   WELL,   WELL,   STRAY,  STRAY,  STRAY,  STRAY,  REST_S, LATEST, WELL]),
    (Standby(Place::Target), [WELL,   WELL,   WELL,   WELL,   WELL,   WELL,   WELL,   WELL,   LATEST, REST_T, LATEST, WELL]),
    (Standby(Place::Master), [WELL; 12]),
    (Dump(Place::Source),    [WELL,   AGAIN,  AGAIN,  AGAIN,  AGAIN,  REST_S,  STRAY,  STRAY,  STRAY,  REST_S, LATEST, WELL]),
    (Dump(Place::Target),    [WELL,   AGAIN,  AGAIN,  AGAIN,  AGAIN,  LATEST, LATEST, LATEST, LATEST, REST_T, LATEST, HAND]),
    (Dump(Place::Master),    [WELL,   ADOPT,  ADOPT,  ADOPT,  ADOPT,  ADOPT,  ADOPT,  ADOPT,  ADOPT,  ADOPT,  ADOPT,  UNKNOWN]),
    (Gone(Place::Source),    [BACKUP, BACKUP, BACKUP, BACKUP, BACKUP, S_LOST, S_LOST, S_LOST, S_LOST, S_LOST, S_LOST, BACKUP]),
    (Gone(Place::Target),    [T_LOST, T_LOST, T_LOST, T_LOST, T_LOST, BACKUP, BACKUP, BACKUP, LATEST, LATEST, LATEST, T_LOST]),
    (Gone(Place::Master),    [ANEW; 12]),
    (Full(Place::Source),    [ROOM; 12]),
    (Full(Place::Target),    [ROOM; 12]),
    (Full(Place::Master),    [ROOM; 12]),
];

/// Returns how a disaster at a stage must end.
pub fn expected(disaster: Disaster, stage: SplitStage) -> Option<ExpectedEnd> {
    ENDS.iter().find(|(one, _)| *one == disaster).map(|(_, row)| row[stage as usize])
}

impl ExpectedEnd {
    /// Whether the calls that helped are those that were expected.
    pub fn is(self, helped: &[Help]) -> bool {
        match self {
            Itself => helped.is_empty(),
            Told(help) => helped.contains(&help) && helped.iter().all(|one| *one == help),
            Among(helps) => helped.iter().all(|one| helps.contains(one)),
            Either(help) => helped.iter().all(|one| *one == help),
        }
    }
}
