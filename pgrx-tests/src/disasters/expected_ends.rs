//! How each cell ends.

use super::disaster::Disaster::{self, *};
use super::disaster::{Link, Place};
use super::injections::SplitStage;
use super::operator::Help;

/// What a cell needs to come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedEnd {
    /// Nobody but the operator who goes on; a cutover that was aborted is asked for again.
    Itself,
    /// The split stops, says what is the matter, and this helps.
    Told(Help),
    /// One of several, or none: it depends on which of a stage's injections it is.
    Among(&'static [Help]),
    /// One or the other: whether a client has written in a short time that was open to it.
    Either(Help),
}

use ExpectedEnd::*;

const ADOPT: ExpectedEnd = Told(Help::Adopt);
const LATEST: ExpectedEnd = Told(Help::RestoreLatest);
/// The part of finish that still can, begins again.
const REST_S: ExpectedEnd = Among(&[Help::BringOver, Help::RestoreLatest]);
const REST_T: ExpectedEnd = LATEST;
const STRAY: ExpectedEnd = Either(Help::BringOver);
const BACKUP: ExpectedEnd = Told(Help::RestoreBackup);
const T_LOST: ExpectedEnd = Told(Help::TargetLost);
const S_LOST: ExpectedEnd = Told(Help::SourceLost);
/// The shards may have nothing by which they know their master.
const UNKNOWN: ExpectedEnd = Either(Help::Adopt);
const ANEW: ExpectedEnd = Told(Help::NewMaster);
const AGAIN: ExpectedEnd = Among(&[Help::Again, Help::ByHand]);
const HAND: ExpectedEnd = Either(Help::ByHand);
const ROOM: ExpectedEnd = Either(Help::Resume);
/// Short, so that the table stays one.
const WELL: ExpectedEnd = Itself;

/// In the order of `SplitStage`.
type Row = [ExpectedEnd; 12];

/// A row for each disaster, a column for each stage of a split.
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

/// How a disaster at a stage is to end.
pub fn expected(disaster: Disaster, stage: SplitStage) -> Option<ExpectedEnd> {
    ENDS.iter().find(|(one, _)| *one == disaster).map(|(_, row)| row[stage as usize])
}

impl ExpectedEnd {
    /// Whether what was needed is what was to be.
    pub fn is(self, helped: &[Help]) -> bool {
        match self {
            Itself => helped.is_empty(),
            Told(help) => helped.contains(&help) && helped.iter().all(|one| *one == help),
            Among(helps) => helped.iter().all(|one| helps.contains(one)),
            Either(help) => helped.iter().all(|one| *one == help),
        }
    }
}
