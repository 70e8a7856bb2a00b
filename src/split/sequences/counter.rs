//! The position of a sequence of the target, and how far it may be raised.

use crate::guc;
use crate::numbers::progression;

/// The position of a sequence, and its direction.
#[derive(Clone, Copy)]
pub struct CounterState {
    pub increment: i64,
    min: i64,
    max: i64,
    start: i64,
    now: i64,
    /// Where the numbers begin at least that sessions have taken in advance (CACHE). `None` if unknown.
    taken_from: Option<i64>,
    /// The number of values that are taken at once.
    pub cache: i64,
    /// Whether it has given out the number at its position.
    is_called: bool,
    /// The column that it fills ends before it does.
    is_held: bool,
}

impl CounterState {
    /// Returns None if no server makes such a sequence.
    pub fn read(numbers: &[i64]) -> Option<CounterState> {
        let [increment, min, max, start, now, cache, is_called] = *numbers else { return None };
        let range = min..=max;
        (increment != 0 && range.contains(&start) && range.contains(&now)).then_some(CounterState {
            increment,
            min,
            max,
            start,
            now,
            taken_from: (cache <= 1).then_some(now),
            cache,
            is_called: is_called != 0,
            is_held: false,
        })
    }

    /// Limits it to what its column can hold: from `-most` to `most`.
    pub fn held(self, most: Option<i64>) -> CounterState {
        let Some(most) = most else { return self };
        let (min, max) = (
            self.min.max(-most).min(self.now).min(self.start),
            self.max.min(most).max(self.now).max(self.start),
        );
        CounterState { min, max, is_held: (min, max) != (self.min, self.max), ..self }
    }

    /// Returns the last value that it is raised to: half of what lies between its start and its end. Only the source
    /// determines how far a sequence is. A compromised source may report anything, and if a sequence is at its end, no
    /// client can insert into the target's table any more, whatever its key. The bound is the target's own and does
    /// not move with a raise, so many raises do not exceed it either.
    fn bound(self) -> i64 {
        let middle = (i128::from(self.start) + i128::from(self.end())) / 2;
        self.within(middle)
    }

    /// Whether the source's position cannot be followed.
    fn is_out_of_bounds(self, value: i64) -> bool {
        let (wanted, bound) = (self.beyond(value, 1), self.bound());
        !self.has_passed(wanted) && if self.is_up() { value > bound } else { value < bound }
    }

    pub fn now(self) -> i64 {
        self.now
    }

    /// Returns the state after a raise: it is there or further on, and what sessions had taken is void.
    pub fn raised_to(self, wanted: i64) -> CounterState {
        let (now, is_called) =
            if self.has_passed(wanted) { (self.now, self.is_called) } else { (wanted, false) };
        CounterState { now, is_called, taken_from: Some(now), ..self }
    }

    /// Returns where it is set for a source that is at a value.
    pub fn wanted(self, value: i64, margins: i64) -> i64 {
        let beyond = self.beyond(value, margins);
        if self.has_passed(beyond) { self.now } else { self.next_of_its_own(beyond) }
    }

    /// Returns the state after a raise by twice the margin, if one is needed.
    pub fn after(self, value: i64) -> CounterState {
        if self.have_all_passed(self.beyond(value, 1)) { self } else { self.raised_to(self.wanted(value, 2)) }
    }

    /// Returns the range from the next number that it gives out to its end, or None if there is none.
    pub fn to_come(self) -> Option<[i64; 2]> {
        let next = if self.is_called { self.now.checked_add(self.increment)? } else { self.now };
        let range = if self.is_up() { [next, self.max] } else { [self.min, next] };
        (range[0] <= range[1]).then_some(range)
    }

    /// Whether it ends where another one does, or before.
    pub fn ends_within(self, other: CounterState) -> bool {
        if self.is_up() { self.max <= other.max } else { self.min >= other.min }
    }

    /// Returns how many numbers it will still give out.
    pub fn left(self) -> i128 {
        let way = (i128::from(self.end()) - i128::from(self.now)) / i128::from(self.increment);
        way + i128::from(!self.is_called)
    }

    /// Returns the state with an earlier knowledge: numbers that were taken in advance begin where they were known to
    /// begin before, or later.
    pub fn known_as(self, before: Option<CounterState>) -> CounterState {
        CounterState { taken_from: self.taken_from.or(before.and_then(|before| before.taken_from)), ..self }
    }

    /// Whether it has none of the numbers of another one: it is never raised to that one's position, out of its own
    /// range.
    pub fn is_apart_from(self, other: CounterState) -> bool {
        progression::are_apart([self.min, self.max], [other.min, other.max])
    }

    /// Returns the least and the greatest number.
    pub fn range(self) -> [i64; 2] {
        [self.min, self.max]
    }

    pub fn is_up(self) -> bool {
        self.increment > 0
    }

    /// Returns the last number that it can give out.
    fn end(self) -> i64 {
        if self.is_up() { self.max } else { self.min }
    }

    fn reaches(self, value: i64) -> bool {
        if self.is_up() { value < self.max } else { value > self.min }
    }

    /// Returns a value some margins beyond the source's, but no more than half of what lies between that and its end:
    /// otherwise a small sequence would have no number left.
    pub fn beyond(self, value: i64, margins: i64) -> i64 {
        let (value, increment) = (i128::from(value), i128::from(self.increment));
        let half = (i128::from(self.end()) - value) / increment / 2;
        let steps = (i128::from(guc::sequence_margin()) * i128::from(margins)).min(half).max(1);
        self.within(value + steps * increment)
    }

    fn within(self, value: i128) -> i64 {
        i64::try_from(value.clamp(i128::from(self.min), i128::from(self.max))).unwrap_or(self.max)
    }

    pub fn has_passed(self, value: i64) -> bool {
        if self.is_up() { self.now >= value } else { self.now <= value }
    }

    /// Whether all numbers that sessions have taken and not given out yet have passed a value.
    pub fn have_all_passed(self, value: i64) -> bool {
        self.taken_from.is_some_and(|from| CounterState { now: from, ..self }.has_passed(value))
    }

    /// Returns the first of its own values behind another: if each shard has its own remainder, so that no two of them
    /// give out one value, the sequence keeps to it.
    pub fn next_of_its_own(self, value: i64) -> i64 {
        let (now, increment) = (i128::from(self.now), i128::from(self.increment));
        let (way, stride) = ((i128::from(value) - now).abs(), increment.abs());
        let own = now + (way + stride - 1) / stride * increment;
        // At its end there is none.
        if self.within(own) == i64::try_from(own).unwrap_or(self.max) { self.within(own) } else { value }
    }
}

/// Returns why a sequence is not raised so far, and what to do about it.
pub fn out_of_reach(state: CounterState, sequence: &str, value: i64) -> Option<(String, String)> {
    if state.is_held && (!state.reaches(value) || state.is_out_of_bounds(value)) {
        let end = state.end();
        let text = format!(
            "the column that sequence {sequence} fills ends at {end}, and that of the source is at {value}: it is raised half way at most"
        );
        return Some((
            text,
            "Give the column a larger type on the target, for example bigint, or a CHECK with a higher limit."
                .to_owned(),
        ));
    }
    if !state.reaches(value) {
        let text = format!("sequence {sequence} ends before {value}, which that of the source has reached");
        let hint = format!(
            "ALTER SEQUENCE {sequence} AS bigint, or with another MAXVALUE (MINVALUE, if it counts down)."
        );
        return Some((text, hint));
    }
    if !state.is_out_of_bounds(value) {
        return None;
    }
    let (start, bound) = (state.start, state.bound());
    let text = format!(
        "sequence {sequence}, which starts with {start}, is raised to {bound} at most, half way to its end, and that of the source is at {value}"
    );
    let hint = format!(
        "An attacked source can report any value, to use up the target's sequence. If the value is right, raise the limit on the target: ALTER SEQUENCE {sequence} START WITH {value}. Or set another MAXVALUE (MINVALUE, if it counts down)."
    );
    Some((text, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(increment: i64, now: i64) -> CounterState {
        let (min, max) = if increment > 0 { (1, i64::MAX) } else { (i64::MIN, -1) };
        CounterState {
            increment,
            min,
            max,
            start: increment.signum(),
            now,
            taken_from: Some(now),
            cache: 1,
            is_called: true,
            is_held: false,
        }
    }

    #[test]
    fn a_sequence_keeps_its_remainder() {
        let cases = [
            (1, 1, 1001, 1001),
            (10, 2, 1001, 1002),
            (10, 2, 1002, 1002),
            (10, 2, 1003, 1012),
            (10, -8, 5, 12),
            (-1, -1, -1001, -1001),
            (-10, -2, -1001, -1002),
            (-10, -2, -1003, -1012),
        ];
        for (increment, now, wanted, own) in cases {
            assert_eq!(state(increment, now).next_of_its_own(wanted), own, "{increment}, {now}, {wanted}");
        }
        let full = CounterState { max: 1005, ..state(10, 2) };
        assert_eq!(full.next_of_its_own(1004), 1004);
    }

    #[test]
    fn what_is_no_sequence_is_none() {
        assert!(CounterState::read(&[1, 1, 10, 1, 10, 1, 0]).is_some());
        for numbers in [
            &[0, 1, 10, 1, 1, 1, 0][..],
            &[1, 10, 1, 1, 1, 1, 0],
            &[1, 1, 10, 11, 1, 1, 0],
            &[1, 1, 10, 1, 0, 1, 0],
            &[1, 1, 10, 1, 1],
        ] {
            assert!(CounterState::read(numbers).is_none(), "{numbers:?}");
        }
    }

    #[test]
    fn a_sequence_is_followed_to_the_half_of_its_range_and_of_its_column() {
        let int = |now| CounterState { max: i64::from(i32::MAX), ..state(1, now) };
        assert_eq!(int(1).bound(), 1 << 30);
        // Its current position does not move the bound.
        for now in [1, 1 << 29] {
            assert!(!int(now).is_out_of_bounds(1 << 30), "{now}");
            assert!(int(now).is_out_of_bounds((1 << 30) + 1), "{now}");
        }
        // A sequence that has passed the bound needs no raise.
        assert!(!int(i64::from(i32::MAX)).is_out_of_bounds((1 << 30) + 1));
        let started = CounterState { start: 1 << 30, ..int(1 << 30) };
        assert!(!started.is_out_of_bounds((1 << 30) + 1));
        assert!(state(-1, -1).is_out_of_bounds(i64::MIN + 1));
        assert!(!state(-1, -1).is_out_of_bounds(-1_000_000));
        // It is not raised past what its column holds either.
        let small = state(1, 1).held(Some(32_767));
        assert_eq!(small.beyond(32_000, 1), 32_383);
        assert!(out_of_reach(small, "s", 17_000).is_some_and(|(text, _)| text.contains("ends at 32767")));
        assert!(out_of_reach(small, "s", 1_000).is_none());
        // If it is past that already, no client can insert any more.
        assert!(out_of_reach(state(1, 40_000).held(Some(32_767)), "s", 1_000).is_none());
        let down = state(-1, -1).held(Some(32_767));
        assert_eq!(down.beyond(-32_700, 1), -32_733);
        // A small one keeps half of what is left to it.
        let tiny = CounterState { max: 100, is_called: false, ..state(1, 1) };
        assert_eq!([tiny.left(), tiny.beyond(10, 1).into(), tiny.after(10).left()], [100, 55, 46]);
        assert_eq!(tiny.after(99).left(), 1);
        let past = CounterState { max: 100, ..state(1, 100) };
        assert_eq!(
            [past.after(10).left(), CounterState { is_called: false, ..past }.after(10).left()],
            [0, 1]
        );
        let tens = CounterState { min: -1_000, ..state(-10, -5) };
        assert_eq!((tens.left(), tens.after(-900).now(), tens.after(-900).left()), (99, -955, 5));
    }

    #[test]
    fn what_sessions_have_taken_in_advance_counts() {
        let cached = CounterState::read(&[1, 1, 10_000, 1, 5_000, 20, 1]).unwrap();
        assert!(cached.has_passed(5_000) && !cached.have_all_passed(1));
        let raised = cached.raised_to(2_000);
        assert!(raised.now() == 5_000 && raised.have_all_passed(5_000));
        // If it is further on, they begin no earlier.
        let later = CounterState::read(&[1, 1, 10_000, 1, 6_000, 20, 1]).unwrap().known_as(Some(raised));
        assert!(later.have_all_passed(5_000) && !later.have_all_passed(5_001));
        assert!(CounterState::read(&[1, 1, 10_000, 1, 5_000, 1, 1]).unwrap().have_all_passed(5_000));
    }
}
