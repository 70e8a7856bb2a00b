//! Shards that are no longer waited for: once an operator has declared one lost for good, its answer is not waited
//! for.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// How often this is checked while an answer is waited for.
pub(super) const ASK: Duration = Duration::from_millis(300);

type IsWanted = Rc<dyn Fn(&str) -> bool>;

thread_local! {
    static IS_WANTED: RefCell<Option<IsWanted>> = const { RefCell::new(None) };
}

/// Makes this process wait for a shard, by its key, only while it is wanted, whatever it waits for: to connect, for an
/// answer, or for a COPY.
pub fn wait_while(is_wanted: impl Fn(&str) -> bool + 'static) {
    IS_WANTED.set(Some(Rc::new(is_wanted)));
}

pub(super) fn is_wanted(shard: &str) -> bool {
    // The function is not borrowed while it is called.
    let ask = IS_WANTED.with_borrow(Clone::clone);
    ask.is_none_or(|ask| ask(shard))
}
