//! Numbers that differ between sessions and calls; nothing depends on their randomness.

use pgrx::pg_sys;
use std::cell::Cell;

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Returns a number between 0 and 1.
pub fn next() -> f64 {
    STATE.with(|state| {
        // The numbers advance by steps of the golden ratio, from a start that depends on the process's number.
        let seed = match state.get() {
            // SAFETY: this is a plain variable of this process.
            0 => u64::from(unsafe { pg_sys::MyProcPid } as u32).wrapping_mul(0xd6e8_feb8_6659_fd93) | 1,
            seed => seed,
        };
        let next = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        (next >> 11) as f64 / (1u64 << 53) as f64
    })
}
