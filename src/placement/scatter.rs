//! Numbers that differ between sessions and calls; nothing depends on how random they
//! are.

use pgrx::pg_sys;
use std::cell::Cell;

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Between 0 and 1.
pub fn next() -> f64 {
    STATE.with(|state| {
        // Steps of the golden ratio, from where the process's number says.
        let seed = match state.get() {
            // SAFETY: a plain variable of this process.
            0 => u64::from(unsafe { pg_sys::MyProcPid } as u32).wrapping_mul(0xd6e8_feb8_6659_fd93) | 1,
            seed => seed,
        };
        let next = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        (next >> 11) as f64 / (1u64 << 53) as f64
    })
}
