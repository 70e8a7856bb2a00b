//! How much of what may happen is tried. Small forms, which take seconds each, and the large
//! ones of a long run.

use crate::model::Bounds;
use crate::state::Cause;

const ANY_CAUSE: &[Cause] = &[Cause::Standby, Cause::Disk, Cause::Asynchronous];

/// Nothing goes wrong but what writers and the operator do. The last writer of three is above
/// READ COMMITTED.
pub const PLAIN: Bounds = Bounds {
    writers: 3,
    old_snapshots: true,
    calls: 1,
    rolls_back: true,
    finishes: true,
    faults: 0,
    setbacks: 0,
    causes: ANY_CAUSE,
    shards_set_back: [true, true],
    master_set_back: true,
    legs: 1,
};

/// A server or a worker crashes anywhere.
pub const CRASHES: Bounds = Bounds { faults: 1, ..PLAIN };

/// Two cutovers, an aborted one and another.
pub const AGAIN: Bounds =
    Bounds { old_snapshots: false, calls: 2, rolls_back: false, finishes: false, ..CRASHES };

/// One server is set back: a standby is promoted, or a disk's snapshot is restored. An old
/// primary of the master may live on with its worker.
pub const SET_BACK: Bounds =
    Bounds { old_snapshots: false, rolls_back: false, finishes: false, setbacks: 1, ..PLAIN };

/// The same with a rollback and a finish.
pub const SET_BACK_ENDED: Bounds = Bounds { writers: 2, rolls_back: true, finishes: true, ..SET_BACK };

/// The same with one writer, which is enough for most.
pub const SET_BACK_ONE: Bounds = Bounds { writers: 1, ..SET_BACK_ENDED };

/// Both in one run.
pub const BOTH: Bounds = Bounds { faults: 1, rolls_back: false, finishes: false, ..SET_BACK_ONE };

/// A cutover and the reverse split.
pub const WAY_BACK: Bounds = Bounds { calls: 2, rolls_back: false, legs: 2, ..CRASHES };

/// A cutover, the reverse split, and the way there again.
pub const THERE_AGAIN: Bounds = Bounds { writers: 2, calls: 3, legs: 3, finishes: false, ..WAY_BACK };

/// The reverse split where a server is set back.
pub const WAY_BACK_SET_BACK: Bounds =
    Bounds { writers: 1, old_snapshots: false, faults: 0, setbacks: 1, ..WAY_BACK };

/// Long runs.
pub const SOAK: [Bounds; 8] = [
    SET_BACK,
    WAY_BACK,
    Bounds { faults: 2, ..CRASHES },
    Bounds { writers: 3, ..SET_BACK_ENDED },
    Bounds { finishes: true, rolls_back: true, ..BOTH },
    Bounds { writers: 2, ..BOTH },
    Bounds { faults: 1, ..WAY_BACK_SET_BACK },
    Bounds { writers: 2, ..WAY_BACK_SET_BACK },
];
