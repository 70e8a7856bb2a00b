//! The numbers that a sequence gives out, and whether two sequences can give out the same one.

/// The state of a sequence, as the server reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    /// The last number that it has given out; `None` if there is none yet.
    pub last: Option<i64>,
    pub cycles: bool,
}

/// Numbers at equal distances, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progression {
    first: i128,
    last: i128,
    step: i128,
}

impl Progression {
    /// Returns None if there are no numbers. `first` and `end` are in the direction of the step.
    fn new(first: i128, end: i128, step: i128) -> Option<Progression> {
        let count = (end - first) / step;
        if (end - first) * step.signum() < 0 {
            return None;
        }
        let other = first + count * step;
        Some(Progression { first: first.min(other), last: first.max(other), step: step.abs() })
    }

    #[cfg(test)]
    fn has(self, number: i128) -> bool {
        (self.first..=self.last).contains(&number) && (number - self.first) % self.step == 0
    }

    /// Returns the lowest number of both.
    fn meets(self, other: Progression) -> Option<i128> {
        let (from, to) = (self.first.max(other.first), self.last.min(other.last));
        let (divisor, inverse) = extended(self.step, other.step);
        let distance = other.first - self.first;
        if from > to || distance % divisor != 0 {
            return None;
        }
        // The number is first + k * step, where k is known up to a multiple of `turn`: all values stay far below the
        // bounds of i128.
        let turn = other.step / divisor;
        let k = ((distance / divisor) % turn * inverse).rem_euclid(turn);
        let stride = self.step * turn;
        let met = self.first + k * self.step;
        let met = if met < from { met + (from - met + stride - 1) / stride * stride } else { met };
        (met <= to).then_some(met)
    }
}

/// Returns the greatest common divisor of two numbers, and the factor of the first one in it.
fn extended(a: i128, b: i128) -> (i128, i128) {
    let (mut old, mut now) = ((a, 1), (b, 0));
    while now.0 != 0 {
        let quotient = old.0 / now.0;
        (old, now) = (now, (old.0 - quotient * now.0, old.1 - quotient * now.1));
    }
    old
}

impl Numbers {
    /// Reads the columns as the server lists them: increment, least, greatest, last number given out, whether it
    /// cycles.
    pub fn read(cells: &[Option<String>]) -> Option<Numbers> {
        let [Some(increment), Some(min), Some(max), last, Some(cycles)] = cells else { return None };
        let last = match last {
            Some(last) => Some(last.parse().ok()?),
            None => None,
        };
        let (increment, min, max) = (increment.parse().ok()?, min.parse().ok()?, max.parse().ok()?);
        (increment != 0 && min <= max).then_some(Numbers { increment, min, max, last, cycles: cycles == "t" })
    }

    /// Treats a sequence that has given out nothing as if it had given out the number before `first`.
    pub fn begin_with(&mut self, first: i64) {
        self.last = self.last.or(first.checked_sub(self.increment));
    }

    /// Whether an eighth of its range is left, or less.
    pub fn is_nearly_used_up(self) -> bool {
        let (min, max) = (i128::from(self.min), i128::from(self.max));
        self.is_up() && self.last.is_some_and(|last| max - i128::from(last) <= (max - min) / 8)
    }

    /// Returns one of the numbers that it gives out.
    pub fn like(self) -> i64 {
        self.last.unwrap_or(if self.is_up() { self.min } else { self.max })
    }

    fn is_up(self) -> bool {
        self.increment > 0
    }

    /// Returns what it may still give out. The start of a sequence that has given out nothing is not known, and may be
    /// anywhere.
    fn to_come(self) -> impl Iterator<Item = Progression> {
        let (min, max, step) = (i128::from(self.min), i128::from(self.max), i128::from(self.increment));
        let (start, end) = if self.is_up() { (min, max) } else { (max, min) };
        let next = self.last.map_or(start, |last| i128::from(last) + step);
        let again =
            (self.cycles && self.last.is_some()).then(|| Progression::new(start, end, step)).flatten();
        [Progression::new(next, end, step), again].into_iter().flatten()
    }

    /// Returns a number that both may give out from now on.
    pub fn meet(self, other: Numbers) -> Option<i64> {
        let met =
            self.to_come().flat_map(|ours| other.to_come().filter_map(move |theirs| ours.meets(theirs)));
        met.min().and_then(|number| i64::try_from(number).ok())
    }

    /// Whether it may still give out a number.
    #[cfg(test)]
    pub fn may_give(self, number: i64) -> bool {
        self.to_come().any(|numbers| numbers.has(i128::from(number)))
    }

    /// Whether neither can ever give out a number of the other one, at any position: a number of one then need not be
    /// compared with the other.
    pub fn is_apart_from(self, other: Numbers) -> bool {
        are_apart([self.min, self.max], [other.min, other.max])
    }
}

/// Whether two ranges of numbers are disjoint. A sequence is never raised to the position of another one whose range
/// is disjoint: it would leave its block.
pub fn are_apart(one: [i64; 2], other: [i64; 2]) -> bool {
    one[1] < other[0] || other[1] < one[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers(increment: i64, min: i64, max: i64, last: Option<i64>) -> Numbers {
        Numbers { increment, min, max, last, cycles: false }
    }

    #[test]
    fn two_new_sequences_meet() {
        let new = numbers(1, 1, i64::MAX, None);
        assert_eq!(new.meet(new), Some(1));
        let used = Numbers { last: Some(500), ..new };
        assert_eq!(new.meet(used), Some(501));
        let full = Numbers { last: Some(i64::MAX), ..new };
        assert_eq!(full.meet(new), None);
        assert_eq!(Numbers { cycles: true, ..full }.meet(new), Some(1));
    }

    #[test]
    fn blocks_and_remainders_keep_sequences_apart() {
        let (one, two) = (numbers(1, 1 << 40, (2 << 40) - 1, None), numbers(1, 2 << 40, (3 << 40) - 1, None));
        assert!(one.meet(two).is_none() && one.is_apart_from(two) && two.is_apart_from(one));
        let odd = numbers(2, 1, i64::MAX, Some(1001));
        let even = numbers(2, 2, i64::MAX, Some(4));
        assert!(odd.meet(even).is_none() && !odd.is_apart_from(even));
        assert_eq!(numbers(6, 1, 1000, None).meet(numbers(10, 5, 1000, None)), Some(25));
        // A pool of ORMs counts by fifties and uses the numbers in between: these belong to the application.
        assert_eq!(numbers(50, 1, i64::MAX, None).meet(numbers(50, 1, i64::MAX, Some(51))), Some(101));
        let down = numbers(-1, i64::MIN, -1, None);
        assert!(down.meet(odd).is_none());
        assert_eq!(down.meet(numbers(-3, -20, -2, Some(-5))), Some(-20));
    }

    #[test]
    fn one_that_is_new_begins_where_it_was_set() {
        let (mut one, mut other) = (numbers(2, 1, i64::MAX, None), numbers(2, 1, i64::MAX, Some(9)));
        assert_eq!(one.meet(other), Some(11));
        one.begin_with(1002);
        other.begin_with(2);
        assert!(one.meet(other).is_none() && one.may_give(1002) && !one.may_give(1000));
        assert!(other.may_give(11));
    }

    #[test]
    fn a_block_is_used_up_before_its_end() {
        let block = numbers(1, 1000, 1999, None);
        let at = |last| Numbers { last: Some(last), ..block }.is_nearly_used_up();
        assert!(!block.is_nearly_used_up() && !at(1000) && !at(1874) && at(1875) && at(1999));
        assert!(!numbers(-1, -100, -1, Some(-100)).is_nearly_used_up());
    }

    proptest! {
        #[test]
        fn they_meet_where_lists_of_their_numbers_do(
            steps in (prop::sample::select(vec![-7i64, -4, -3, -1, 1, 2, 3, 5, 6, 9]), prop::sample::select(vec![-6i64, -2, -1, 1, 2, 4, 9, 10])),
            mins in (-40i64..40, -40i64..40), lengths in (0i64..60, 0i64..60),
            used in (prop::option::of(0i64..60), prop::option::of(0i64..60)), cycles in any::<(bool, bool)>()
        ) {
            let make = |increment: i64, min: i64, length: i64, used: Option<i64>, cycles| {
                let last = used.map(|used| min + used.min(length));
                Numbers { increment, min, max: min + length, last, cycles }
            };
            let one = make(steps.0, mins.0, lengths.0, used.0, cycles.0);
            let other = make(steps.1, mins.1, lengths.1, used.1, cycles.1);
            let list = |numbers: Numbers| (-200i64..200).filter(|n| numbers.may_give(*n)).collect::<Vec<_>>();
            let drawn = |numbers: Numbers| {
                let mut drawn = Vec::new();
                let start = if numbers.increment > 0 { numbers.min } else { numbers.max };
                let mut next = numbers.last.map_or(start, |last| last + numbers.increment);
                for _ in 0..300 {
                    if !(numbers.min..=numbers.max).contains(&next) {
                        if !numbers.cycles || numbers.last.is_none() { break; }
                        next = start;
                    }
                    drawn.push(next);
                    next += numbers.increment;
                }
                drawn.sort_unstable();
                drawn.dedup();
                drawn
            };
            prop_assert_eq!(list(one), drawn(one));
            let both = list(one).into_iter().find(|number| list(other).contains(number));
            prop_assert_eq!(one.meet(other), both);
        }
    }
}
