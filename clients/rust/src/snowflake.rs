//! Identifiers that are unique across machines without asking anybody: 41 bits of
//! milliseconds since an epoch, 10 bits of machine, 12 bits of sequence, in a positive
//! number of 64 bits that grows with time.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xxhash_rust::xxh64::xxh64;

/// 2024-01-01 00:00 UTC, in milliseconds of Unix time.
pub const DEFAULT_EPOCH: u64 = 1_704_067_200_000;
/// Machine ids are below this.
pub const MACHINES: u16 = 1 << MACHINE_BITS;

const TIME_BITS: u32 = 41;
const MACHINE_BITS: u32 = 10;
const SEQUENCE_BITS: u32 = 12;
const LAST_SEQUENCE: u64 = (1 << SEQUENCE_BITS) - 1;

/// A moment of one machine: milliseconds since the epoch and a sequence, as one number
/// that only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub u64);

/// What comes after a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Take(Tick),
    /// The clock must have reached this millisecond first.
    WaitFor(u64),
}

impl Tick {
    /// The last one of a millisecond.
    pub fn last_of(millisecond: u64) -> Tick {
        Tick(millisecond << SEQUENCE_BITS | LAST_SEQUENCE)
    }

    pub fn millisecond(self) -> u64 {
        self.0 >> SEQUENCE_BITS
    }

    fn sequence(self) -> u64 {
        self.0 & LAST_SEQUENCE
    }

    /// The next tick by a clock that may have been set back: no tick comes twice.
    pub fn next(self, now: u64) -> Next {
        let last = self.millisecond();
        if now > last {
            Next::Take(Tick(now << SEQUENCE_BITS))
        } else if now < last {
            Next::WaitFor(last)
        } else if self.sequence() < LAST_SEQUENCE {
            Next::Take(Tick(self.0 + 1))
        } else {
            Next::WaitFor(last + 1)
        }
    }

    /// None: the 41 bits are used up, after 69 years.
    pub fn id(self, machine: u16) -> Option<i64> {
        if self.millisecond() >> TIME_BITS != 0 || machine >= MACHINES {
            return None;
        }
        let id = self.millisecond() << (MACHINE_BITS + SEQUENCE_BITS)
            | u64::from(machine) << SEQUENCE_BITS
            | self.sequence();
        i64::try_from(id).ok()
    }
}

/// What an identifier is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// Milliseconds since the epoch.
    pub millisecond: u64,
    pub machine: u16,
    pub sequence: u16,
}

/// Takes an identifier apart; None: it is negative, so it is none.
pub fn parts(id: i64) -> Option<Parts> {
    let id = u64::try_from(id).ok()?;
    Some(Parts {
        millisecond: id >> (MACHINE_BITS + SEQUENCE_BITS),
        machine: (id >> SEQUENCE_BITS) as u16 & (MACHINES - 1),
        sequence: (id & LAST_SEQUENCE) as u16,
    })
}

/// A machine id from a name: two names may give the same one, see `chance_to_meet`.
pub fn machine_of(worker_id: &str) -> u16 {
    (xxh64(worker_id.as_bytes(), 0) % u64::from(MACHINES)) as u16
}

/// How probable it is that of so many machines with hashed names two share an id.
pub fn chance_to_meet(machines: u16) -> f64 {
    let all = f64::from(MACHINES);
    1.0 - (0..machines).map(|taken| (all - f64::from(taken)).max(0.0) / all).product::<f64>()
}

/// Milliseconds of Unix time.
pub trait Clock {
    fn now(&self) -> u64;
}

pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnowflakeError {
    /// By more than a generator waits for.
    ClockSetBack {
        milliseconds: u64,
    },
    BeforeEpoch,
    UsedUp,
}

impl fmt::Display for SnowflakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnowflakeError::ClockSetBack { milliseconds } => {
                write!(f, "the clock is {milliseconds} ms behind the last identifier")
            }
            SnowflakeError::BeforeEpoch => write!(f, "the clock is before the epoch of identifiers"),
            SnowflakeError::UsedUp => write!(f, "the identifiers of this epoch are used up"),
        }
    }
}

impl std::error::Error for SnowflakeError {}

/// Makes the identifiers of one machine, for any number of threads. A process that is
/// started again on the same machine must not begin in the millisecond in which it ended.
pub struct Generator<C = SystemClock> {
    machine: u16,
    epoch: u64,
    clock: C,
    last: AtomicU64,
}

impl Generator {
    /// None: no such machine id.
    pub fn new(machine: u16) -> Option<Generator> {
        Generator::with_clock(machine, DEFAULT_EPOCH, SystemClock)
    }
}

impl<C: Clock> Generator<C> {
    /// With an epoch in milliseconds of Unix time.
    pub fn with_clock(machine: u16, epoch: u64, clock: C) -> Option<Generator<C>> {
        (machine < MACHINES).then(|| Generator { machine, epoch, clock, last: AtomicU64::new(0) })
    }

    /// The next identifier. Waits for the next millisecond where this one's are used up,
    /// and for a clock that was set back by up to a second.
    pub fn generate(&self) -> Result<i64, SnowflakeError> {
        const LONGEST_WAIT: u64 = 1_000;
        loop {
            let now = self.clock.now().checked_sub(self.epoch).ok_or(SnowflakeError::BeforeEpoch)?;
            let last = self.last.load(Ordering::Relaxed);
            match Tick(last).next(now) {
                Next::Take(tick) => {
                    let taken =
                        self.last.compare_exchange_weak(last, tick.0, Ordering::Relaxed, Ordering::Relaxed);
                    if taken.is_ok() {
                        return tick.id(self.machine).ok_or(SnowflakeError::UsedUp);
                    }
                }
                Next::WaitFor(millisecond) if millisecond - now > LONGEST_WAIT => {
                    return Err(SnowflakeError::ClockSetBack { milliseconds: millisecond - now });
                }
                Next::WaitFor(millisecond) if millisecond - now > 1 => {
                    std::thread::sleep(Duration::from_millis(millisecond - now));
                }
                Next::WaitFor(_) => std::hint::spin_loop(),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::HashSet;

    /// Shows these times one after the other, then goes on by milliseconds.
    struct Script(RefCell<Vec<u64>>);

    impl Clock for Script {
        fn now(&self) -> u64 {
            let mut times = self.0.borrow_mut();
            let now = times[0];
            if times.len() > 1 {
                times.remove(0);
            } else {
                times[0] += 1;
            }
            now
        }
    }

    fn generator(times: &[u64]) -> Generator<Script> {
        let times = times.iter().map(|time| time + DEFAULT_EPOCH).collect();
        Generator::with_clock(5, DEFAULT_EPOCH, Script(RefCell::new(times))).unwrap()
    }

    #[test]
    fn an_identifier_is_made_of_its_parts() {
        let id = generator(&[123_456]).generate().unwrap();
        assert_eq!(parts(id), Some(Parts { millisecond: 123_456, machine: 5, sequence: 0 }));
        assert_eq!(parts(-1), None);
        let last = Tick::last_of((1 << 41) - 1);
        assert_eq!(last.id(1023), Some(i64::MAX));
        assert_eq!(last.id(1024), None);
        assert_eq!(Tick(1 << 53).id(0), None);
    }

    #[test]
    fn a_clock_that_is_set_back_is_waited_for() {
        let generator = generator(&[1_000, 1_000, 998, 999, 1_000, 990]);
        let ids: Vec<i64> = (0..4).map(|_| generator.generate().unwrap()).collect();
        assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    }

    #[test]
    fn a_clock_that_is_set_back_far_is_refused() {
        let generator = generator(&[10_000, 8_999]);
        generator.generate().unwrap();
        assert_eq!(generator.generate(), Err(SnowflakeError::ClockSetBack { milliseconds: 1_001 }));
    }

    #[test]
    fn a_millisecond_has_4096() {
        let generator = generator(&vec![7; 4_097]);
        let ids: HashSet<i64> = (0..4_096).map(|_| generator.generate().unwrap()).collect();
        assert_eq!(ids.len(), 4_096);
        assert_eq!(parts(generator.generate().unwrap()).unwrap().millisecond, 8);
    }

    #[test]
    fn threads_share_a_generator() {
        let generator = Generator::new(1023).unwrap();
        let ids: Vec<Vec<i64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| (0..20_000).map(|_| generator.generate().unwrap()).collect::<Vec<_>>())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|ids| ids.is_sorted() && ids[0] > 0));
        assert_eq!(ids.into_iter().flatten().collect::<HashSet<_>>().len(), 160_000);
    }

    #[test]
    fn names_of_few_machines_rarely_meet() {
        assert!((chance_to_meet(10) - 0.043).abs() < 0.001);
        assert!(chance_to_meet(40) > 0.5);
        assert!(machine_of("worker-1") < MACHINES);
    }
}
