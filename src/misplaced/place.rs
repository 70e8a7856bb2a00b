//! What is next of a run: which lot, unit and keys, and what remains to be tried. Every call ends: after some passes
//! over the rows of a unit, or if others have come between too often, no other session may write to its tables during
//! the last one.

use crate::misplaced::fk_group::Unit;
use crate::misplaced::key_batch::Lot;

/// How often rows are searched that were added while others were moved, before new ones are prevented.
const PASSES: u32 = 4;

/// How often other sessions may come between rows that must move together.
const TRIES: u32 = 3;

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct MovePlace {
    pub lot: usize,
    pub unit: usize,
    /// The position among keys that move one by one.
    key: usize,
    passes: u32,
    tries: u32,
    /// The rows of this pass are listed.
    pub is_listed: bool,
    /// How many rows of this pass were moved.
    gone: u64,
}

impl MovePlace {
    /// Returns the keys whose rows are searched, or None once the unit is done.
    pub fn keys<'a>(&self, lot: &'a Lot, unit: &Unit) -> Option<&'a [String]> {
        if unit.is_whole {
            lot.keys.get(self.key..=self.key)
        } else {
            (self.key == 0).then_some(lot.keys.as_slice())
        }
    }

    /// Whether no other session may write to its tables.
    pub fn is_last(&self) -> bool {
        self.passes >= PASSES || self.tries >= TRIES
    }

    pub fn next_lot(self) -> MovePlace {
        MovePlace { lot: self.lot + 1, ..MovePlace::default() }
    }

    pub fn next_unit(self) -> MovePlace {
        MovePlace { lot: self.lot, unit: self.unit + 1, ..MovePlace::default() }
    }

    pub fn next_key(self) -> MovePlace {
        MovePlace { lot: self.lot, unit: self.unit, key: self.key + 1, ..MovePlace::default() }
    }

    pub fn listed(self) -> MovePlace {
        MovePlace { is_listed: true, ..self }
    }

    pub fn in_vain(self) -> MovePlace {
        MovePlace { tries: self.tries + 1, ..self }
    }

    /// Adds a number of moved rows.
    pub fn with(self, rows: u64) -> MovePlace {
        MovePlace { gone: self.gone + rows, ..self }
    }

    /// Ends a pass, in which all rows have had their turn. If none was moved the next pass would fail as well.
    pub fn after_all(self, is_left: bool) -> MovePlace {
        if is_left {
            let passes = if self.gone > 0 { self.passes + 1 } else { PASSES };
            MovePlace { passes, is_listed: false, gone: 0, ..self }
        } else {
            self.next_key()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_is_one_of_few() {
        let mut place = MovePlace::default();
        for _ in 0..PASSES {
            assert!(!place.is_last());
            place = place.listed().with(7).after_all(true);
        }
        assert!(place.is_last() && !place.is_listed);
        assert_eq!(place.next_key(), MovePlace { key: 1, ..MovePlace::default() });
        // If nothing was moved another pass is useless.
        assert!(MovePlace::default().listed().after_all(true).is_last());
        assert_eq!(
            MovePlace::default().with(7).after_all(false),
            MovePlace { key: 1, ..MovePlace::default() }
        );
    }

    #[test]
    fn who_comes_between_is_kept_out_in_the_end() {
        let mut place = MovePlace::default();
        for _ in 0..TRIES {
            assert!(!place.is_last());
            place = place.in_vain();
        }
        assert!(place.is_last());
    }
}
