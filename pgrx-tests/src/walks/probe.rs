//! Checks whether each key is writable where it is routed, and refused where it is not. It tries a write of
//! each key on each shard, and rolls it back.

use super::keys::KeyIndex;
use super::outages::{Outages, Place};
use super::stage::{BOUND, SHARDS, WalkCluster};
use crate::{Error, Result};
use postgres::Client;
use std::time::{Duration, Instant};

/// The pause between two attempts for a key that is refused.
const PAUSE: Duration = Duration::from_millis(20);

/// A shard's answer to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    Writable,
    /// A request to retry: SM001, SM002, or an error because the transaction began before a change.
    Retry(String),
    /// The shard could not be reached.
    Unreachable(String),
    Other(String),
}

impl ProbeAnswer {
    fn of(outcome: std::result::Result<(), Error>) -> ProbeAnswer {
        let Err(error) = outcome else {
            return ProbeAnswer::Other("the probe did not end with an error".into());
        };
        match error.sqlstate() {
            Some("WK000") => ProbeAnswer::Writable,
            Some("SM001" | "SM002" | "40001") => ProbeAnswer::Retry(error.to_string()),
            // The write was cancelled while it waited at a fence or for a lock.
            Some("57014") => ProbeAnswer::Retry(error.to_string()),
            Some(state) if state.starts_with("57P") || state.starts_with("08") => {
                ProbeAnswer::Unreachable(error.to_string())
            }
            None => ProbeAnswer::Unreachable(error.to_string()),
            Some(_) => ProbeAnswer::Other(error.to_string()),
        }
    }
}

/// Sessions of an ordinary client on each shard.
#[derive(Default)]
pub struct Prober {
    sessions: Vec<Option<Client>>,
}

impl Prober {
    pub fn new() -> Prober {
        Prober { sessions: (0..SHARDS).map(|_| None).collect() }
    }

    pub fn ask(&mut self, stage: &WalkCluster, shard: usize, key: KeyIndex) -> ProbeAnswer {
        let key = &stage.keys[key];
        let slot = &mut self.sessions[shard];
        let client = match slot {
            Some(client) => client,
            None => match connect(stage, shard) {
                Ok(client) => slot.insert(client),
                Err(error) => return ProbeAnswer::Unreachable(error.to_string()),
            },
        };
        let query = format!("SELECT probe('{}', '{}')", key.space.tables()[0], key.text);
        let said = ProbeAnswer::of(client.batch_execute(&query).map_err(Error::from));
        if matches!(said, ProbeAnswer::Unreachable(_)) {
            *slot = None;
        }
        said
    }

    /// Tries until the shard accepts the key. Returns an error if that takes too long and no outage of the
    /// places explains it.
    pub fn await_writable(
        &mut self,
        stage: &WalkCluster,
        outages: &Outages,
        (shard, key): (usize, KeyIndex),
        places: &[Place],
        mut goes_on: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let began = Instant::now();
        loop {
            let said = self.ask(stage, shard, key);
            match said {
                ProbeAnswer::Writable => return Ok(()),
                ProbeAnswer::Other(text) => return Err(text.into()),
                ProbeAnswer::Retry(_) | ProbeAnswer::Unreachable(_) => {}
            }
            if !goes_on()? {
                return Ok(());
            }
            if outages.lasts(places) && began.elapsed() > BOUND {
                return Ok(());
            }
            if outages.is_too_long(places, began) {
                return Err(format!("refused for {:?}: {said:?}", began.elapsed()).into());
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn connect(stage: &WalkCluster, shard: usize) -> Result<Client> {
    let mut client = stage.client_of(shard)?;
    client.batch_execute("SET statement_timeout = '4s'")?;
    Ok(client)
}
