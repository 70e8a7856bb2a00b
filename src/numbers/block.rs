//! Blocks of numbers, one for each shard: which one comes next.

/// How many numbers a block has by default: there are 8,191 blocks below the bound.
pub const SIZE: i64 = 1 << 40;
/// All numbers stay below this by default: JavaScript, and programs that read JSON as it does, can only represent
/// every second number above it.
pub const BELOW: i64 = 1 << 53;

/// Blocks for columns of type integer, which have no room for others: there are 31 of them.
pub const NARROW: Blocks = Blocks { size: 1 << 26, below: 1 << 31 };

/// The numbers that one shard alone gives out: from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    pub first: i64,
    pub last: i64,
}

/// How blocks are made.
#[derive(Debug, Clone, Copy)]
pub struct Blocks {
    pub size: i64,
    /// All numbers are below this.
    pub below: i64,
}

impl Blocks {
    /// Returns these blocks, or narrow ones if a column holds numbers up to `holds` alone.
    pub fn fit_for(self, holds: i64) -> Blocks {
        let is_narrow = (NARROW.below - 1..self.size).contains(&holds);
        if is_narrow { NARROW } else { self }
    }

    /// Whether a block is one of these.
    pub fn has(self, [first, last]: [i64; 2]) -> bool {
        last < self.below && last - first == self.size - 1
    }

    pub fn is_narrow(self) -> bool {
        self.below == NARROW.below
    }

    /// Returns the next block after the drawn numbers, with half a block left for sessions that draw meanwhile, and
    /// after the last block that was given out. Returns None if there is no block below the bound.
    pub fn next(self, drawn: i64, given: i64) -> Option<Block> {
        let size = i128::from(self.size);
        let behind_drawn = (i128::from(drawn.max(0)) + size / 2) / size + 1;
        let number = behind_drawn.max(i128::from(given.max(0)) / size + 1);
        let (first, last) = (number * size, (number + 1) * size - 1);
        if last >= i128::from(self.below) {
            return None;
        }
        Some(Block { first: i64::try_from(first).ok()?, last: i64::try_from(last).ok()? })
    }
}

impl Block {
    pub fn range(self) -> [i64; 2] {
        [self.first, self.last]
    }

    /// Returns the part of the block that a sequence may give out that counts by `increment` and has given out the
    /// number `like`. Pools of ORMs use the numbers before or after each one that they draw, so both ends of the block
    /// are left free for them; and if shards take turns by remainders, each keeps its own.
    pub fn of_sequence(self, increment: i64, like: i64) -> Option<[i64; 2]> {
        if increment <= 1 {
            return (increment == 1).then(|| self.range());
        }
        let first = self.first.checked_add(increment)?;
        let first =
            first.checked_add((i128::from(like) - i128::from(first)).rem_euclid(increment.into()) as i64)?;
        let last = self.last.checked_sub(increment)?;
        (first <= last).then_some([first, last])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCKS: Blocks = Blocks { size: SIZE, below: BELOW };

    #[test]
    fn the_first_block_is_behind_the_numbers_of_before() {
        let first = Block { first: 1 << 40, last: (2 << 40) - 1 };
        assert_eq!(BLOCKS.next(i64::MIN, 0), Some(first));
        assert_eq!(BLOCKS.next(2_000_000_000, 0), Some(first));
        // Numbers that are drawn meanwhile do not reach it.
        assert_eq!(BLOCKS.next((1 << 40) - 1, 0).unwrap().first, 2 << 40);
        assert_eq!(BLOCKS.next(0, first.last).unwrap().first, 2 << 40);
        let last = BLOCKS.next(0, BELOW - SIZE - 1).unwrap();
        assert_eq!(last.last, BELOW - 1);
        assert_eq!(BLOCKS.next(0, last.last), None);
        assert_eq!(BLOCKS.next(i64::MAX, 0), None);
        let all = Blocks { size: SIZE, below: i64::MAX };
        assert_eq!(all.next(0, i64::MAX), None);
        assert!(all.next(BELOW, 0).is_some());
    }

    #[test]
    fn a_pool_keeps_its_remainder_and_a_step_at_both_ends() {
        let block = Block { first: 2000, last: 2999 };
        assert_eq!(block.of_sequence(1, 7), Some([2000, 2999]));
        assert_eq!(block.of_sequence(50, 1), Some([2051, 2949]));
        assert_eq!(block.of_sequence(50, 0), Some([2050, 2949]));
        assert_eq!(block.of_sequence(50, -1), Some([2099, 2949]));
        assert_eq!(block.of_sequence(500, 1), None);
        assert_eq!(block.of_sequence(i64::MAX, i64::MIN), None);
        assert_eq!(block.of_sequence(-1, 1), None);
    }

    #[test]
    fn a_column_of_integers_gets_narrow_blocks() {
        let narrow = BLOCKS.fit_for(i32::MAX.into());
        assert!(narrow.is_narrow() && !BLOCKS.fit_for(i64::MAX).is_narrow());
        assert!(!BLOCKS.fit_for(i16::MAX.into()).is_narrow());
        // Somebody has named blocks that an integer has room for.
        assert!(!Blocks { size: 1000, below: 1 << 20 }.fit_for(i32::MAX.into()).is_narrow());
        assert_eq!(narrow.next(5_000_000, 0), Some(Block { first: 1 << 26, last: (2 << 26) - 1 }));
        assert_eq!(narrow.next(0, (31 << 26) - 1).unwrap().last, i64::from(i32::MAX));
        assert_eq!(narrow.next(0, i32::MAX.into()), None);
        assert!(NARROW.has([1 << 26, (2 << 26) - 1]) && !NARROW.has([1 << 40, (2 << 40) - 1]));
    }

    proptest! {
        #[test]
        fn a_block_is_behind_what_is_used(drawn: i64, given: i64, size in 2i64..i64::MAX, below in 1i64..i64::MAX) {
            if let Some(block) = (Blocks { size, below }).next(drawn, given) {
                prop_assert!(block.first > given && block.first - drawn.max(0) > size / 2 - 1);
                prop_assert!(block.last < below && block.last - block.first == size - 1);
                prop_assert_eq!(block.first % size, 0);
            }
        }

        #[test]
        fn blocks_that_follow_each_other_are_apart(used in 0i64..BELOW) {
            if let Some(one) = BLOCKS.next(used, 0) && let Some(next) = BLOCKS.next(used, one.last) {
                prop_assert!(super::super::progression::are_apart(one.range(), next.range()));
            }
        }
    }
}
