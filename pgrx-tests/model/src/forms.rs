//! Forms bound what may happen: small forms, which take seconds each, and the large ones of a long run.

use crate::model::Bounds;
use crate::state::Cause;

const ANY_CAUSE: &[Cause] = &[Cause::Standby, Cause::Disk, Cause::Asynchronous];

/// No faults: only writers and the operator act. The last of three writers is above READ COMMITTED.
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

/// A server or a worker crashes at any point.
pub const CRASHES: Bounds = Bounds { faults: 1, ..PLAIN };

/// Two cutovers: the first is aborted.
pub const AGAIN: Bounds =
    Bounds { old_snapshots: false, calls: 2, rolls_back: false, finishes: false, ..CRASHES };

/// One server is set back: a standby is promoted, or a snapshot of a disk is restored. An old primary of the
/// master may continue with its worker.
pub const SET_BACK: Bounds =
    Bounds { old_snapshots: false, rolls_back: false, finishes: false, setbacks: 1, ..PLAIN };

/// One server is set back, with a rollback and a finish.
pub const SET_BACK_ENDED: Bounds = Bounds { writers: 2, rolls_back: true, finishes: true, ..SET_BACK };

/// One server is set back, with one writer, which is enough for most rules.
pub const SET_BACK_ONE: Bounds = Bounds { writers: 1, ..SET_BACK_ENDED };

/// A crash and a server that is set back in one run.
pub const BOTH: Bounds = Bounds { faults: 1, rolls_back: false, finishes: false, ..SET_BACK_ONE };

/// A cutover and the reverse split.
pub const WAY_BACK: Bounds = Bounds { calls: 2, rolls_back: false, legs: 2, ..CRASHES };

/// A cutover, the reverse split, and another split in the first direction.
pub const THERE_AGAIN: Bounds = Bounds { writers: 2, calls: 3, legs: 3, finishes: false, ..WAY_BACK };

/// A reverse split in which a server is set back.
pub const WAY_BACK_SET_BACK: Bounds =
    Bounds { writers: 1, old_snapshots: false, faults: 0, setbacks: 1, ..WAY_BACK };

/// The forms of long runs.
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
