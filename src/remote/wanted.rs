//! Shards that nobody waits for any longer: once an operator has said that one is lost for
//! good, its answer is not waited for.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// How often is asked while an answer is waited for.
pub(super) const ASK: Duration = Duration::from_millis(300);

type IsWanted = Rc<dyn Fn(&str) -> bool>;

thread_local! {
    static IS_WANTED: RefCell<Option<IsWanted>> = const { RefCell::new(None) };
}

/// From now on this process waits for a shard, by its key, only while it is wanted, whatever
/// it waits for: to connect, for an answer, or for a COPY.
pub fn wait_while(is_wanted: impl Fn(&str) -> bool + 'static) {
    IS_WANTED.set(Some(Rc::new(is_wanted)));
}

pub(super) fn is_wanted(shard: &str) -> bool {
    // Not borrowed while it is asked.
    let ask = IS_WANTED.with_borrow(Clone::clone);
    ask.is_none_or(|ask| ask(shard))
}
