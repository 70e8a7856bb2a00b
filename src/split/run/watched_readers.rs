//! Logical replication that is set up on a shard while its split runs: it is reported once in the history, and as what
//! the split waits for while it waits for nothing else. The split continues: the sooner it ends, the less its readers
//! miss.

use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::catalog::split::{self, Plan};
use crate::server::txn::transaction;
use crate::split::engine::sessions::EngineSessions;
use crate::split::readers;
use std::time::{Duration, Instant};

/// The time between two checks.
const APART: Duration = Duration::from_secs(5);

/// The last result.
pub(super) struct Readers {
    asked: Option<Instant>,
    /// The readers in words. `None` if there are none.
    found: Option<String>,
}

impl Readers {
    pub(super) const fn none() -> Readers {
        Readers { asked: None, found: None }
    }

    /// Searches them every few seconds.
    pub(super) fn watch(&mut self, plan: &Plan, sessions: &mut EngineSessions) -> Result<Option<String>> {
        if self.asked.is_some_and(|asked| asked.elapsed() < APART) {
            return Ok(self.found.clone());
        }
        self.asked = Some(Instant::now());
        let found = look(plan, sessions)?;
        if let Some((text, hint)) = found.as_ref().filter(|(text, _)| self.found.as_ref() != Some(text)) {
            transaction(|| split::event_again(plan.id, &format!("{text}. {hint}")));
        }
        self.found = found.map(|(text, _)| text);
        Ok(self.found.clone())
    }
}

/// Returns the first one, in words, and what to do.
fn look(plan: &Plan, sessions: &mut EngineSessions) -> Result<Option<(String, String)>> {
    let EngineSessions { control, target, .. } = sessions;
    for (session, side) in [(control, Side::Source), (target, Side::Target)] {
        let shard = session.shard().to_owned();
        if let Some(reader) = readers::find(session, plan, side)?.into_iter().next() {
            return Ok(Some((format!("on shard \"{shard}\" {}", reader.text), reader.hint)));
        }
    }
    Ok(None)
}
