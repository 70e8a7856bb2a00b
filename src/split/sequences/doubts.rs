//! Sequences that functions may draw from, without certainty. They are raised if possible; one that cannot be raised
//! does not block the cutover, and is named before, for the operator to accept.

use super::draw::{Draw, Drawer, DrawnSequence};
use super::pair::SequencePair;
use std::collections::{BTreeMap, BTreeSet};

pub struct SequenceDoubt {
    /// The name, qualified and quoted.
    pub sequence: String,
    pub text: String,
}

#[derive(Default)]
pub struct Doubts {
    pub all: Vec<SequenceDoubt>,
    /// The possible callers by the numbers of the source's sequences.
    who: BTreeMap<String, String>,
}

/// Removes doubts about sequences of a side that are certainly drawn from, and repeated entries of a table.
pub fn settle(draws: &mut Vec<Draw>) {
    let sure: BTreeSet<String> =
        draws.iter().filter(|draw| draw.is_sure()).map(|draw| draw.sequence.oid.clone()).collect();
    let mut known = BTreeSet::new();
    draws.retain(|draw| {
        draw.is_sure()
            || !sure.contains(&draw.sequence.oid)
                && known.insert((draw.table, draw.column.clone(), draw.sequence.oid.clone()))
    });
}

impl Doubts {
    /// Removes those of the source that the mover may not read.
    pub fn set_closed_aside(&mut self, draws: &mut Vec<Draw>) {
        let may = draws.iter().filter_map(|draw| match &draw.by {
            Drawer::Perhaps(who) => Some((draw.sequence.oid.clone(), who.clone())),
            Drawer::Identity
            | Drawer::Default
            | Drawer::Owned
            | Drawer::Function(_)
            | Drawer::Said
            | Drawer::Key => None,
        });
        self.who = may.collect();
        let (closed, open): (Vec<Draw>, Vec<Draw>) =
            std::mem::take(draws).into_iter().partition(|draw| !draw.is_sure() && draw.sequence.is_closed);
        *draws = open;
        for draw in closed {
            self.add(&draw.sequence, &draw.sequence, "the mover cannot read it on the source");
        }
    }

    /// Removes pairs that the mover could not raise, and those whose numbers cannot be read.
    pub fn set_pairs_aside(&mut self, pairs: &mut Vec<SequencePair>) {
        pairs.retain(|pair| match why_not(pair).filter(|_| !pair.is_sure) {
            Some(why) => {
                self.add_pair(pair, &why);
                false
            }
            None => true,
        });
    }

    pub fn add_pair(&mut self, pair: &SequencePair, why: &str) {
        if let Some(from) = pair.from.first() {
            self.add(from, &pair.to, why);
        }
    }

    fn add(&mut self, of_source: &DrawnSequence, sequence: &DrawnSequence, why: &str) {
        if self.all.iter().any(|known| known.sequence == sequence.name) {
            return;
        }
        let who = self.who.get(&of_source.oid).map_or("a function", String::as_str);
        let text = format!(
            "{who} may use sequence {}, which is not raised on the target: {why}; if a number of it is in rows that move, it is given out again there",
            sequence.name
        );
        self.all.push(SequenceDoubt { sequence: sequence.name.clone(), text });
    }
}

fn why_not(pair: &SequencePair) -> Option<String> {
    let to = &pair.to;
    if let Some(role) = &to.may_not {
        return Some(format!("role {role}, which owns the table, cannot set it"));
    }
    if to.is_closed {
        return Some("the mover cannot read it".to_owned());
    }
    if let Some(owner) = &to.of_others {
        return Some(format!("it belongs to {owner}, and the mover is not a member of that role"));
    }
    let cycles = to.cycles || pair.from.iter().any(|from| from.cycles);
    cycles.then(|| "it starts again at its end (CYCLE)".to_owned())
}
