//! Whether each key is writable where it is routed, and refused where it is not: a write of
//! each key is tried on each shard, and taken back.

use super::keys::KeyIndex;
use super::outages::{Place, Weather};
use super::stage::{BOUND, SHARDS, Stage};
use crate::{Error, Result};
use postgres::Client;
use std::time::{Duration, Instant};

/// Between two tries of a key that is refused.
const PAUSE: Duration = Duration::from_millis(20);

/// What a shard says to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Writable,
    /// "Retry": SM001, SM002, or a transaction from before.
    Retry(String),
    /// It could not be asked.
    Unreachable(String),
    Other(String),
}

impl Said {
    fn of(outcome: std::result::Result<(), Error>) -> Said {
        let Err(error) = outcome else { return Said::Other("the probe did not end with an error".into()) };
        match error.sqlstate() {
            Some("WK000") => Said::Writable,
            Some("SM001" | "SM002" | "40001") => Said::Retry(error.to_string()),
            // Cancelled while it waited at a fence, or in a lock.
            Some("57014") => Said::Retry(error.to_string()),
            Some(state) if state.starts_with("57P") || state.starts_with("08") => {
                Said::Unreachable(error.to_string())
            }
            None => Said::Unreachable(error.to_string()),
            Some(_) => Said::Other(error.to_string()),
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

    pub fn ask(&mut self, stage: &Stage, shard: usize, key: KeyIndex) -> Said {
        let key = &stage.keys[key];
        let slot = &mut self.sessions[shard];
        let client = match slot {
            Some(client) => client,
            None => match connect(stage, shard) {
                Ok(client) => slot.insert(client),
                Err(error) => return Said::Unreachable(error.to_string()),
            },
        };
        let query = format!("SELECT probe('{}', '{}')", key.space.tables()[0], key.text);
        let said = Said::of(client.batch_execute(&query).map_err(Error::from));
        if matches!(said, Said::Unreachable(_)) {
            *slot = None;
        }
        said
    }

    /// Asks the shard until it takes the key. An error when that takes too long and nothing
    /// that has happened to the places excuses it.
    pub fn await_writable(
        &mut self,
        stage: &Stage,
        weather: &Weather,
        (shard, key): (usize, KeyIndex),
        places: &[Place],
        mut goes_on: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let began = Instant::now();
        loop {
            let said = self.ask(stage, shard, key);
            match said {
                Said::Writable => return Ok(()),
                Said::Other(text) => return Err(text.into()),
                Said::Retry(_) | Said::Unreachable(_) => {}
            }
            if !goes_on()? {
                return Ok(());
            }
            if weather.lasts(places) && began.elapsed() > BOUND {
                return Ok(());
            }
            if weather.is_too_long(places, began) {
                return Err(format!("refused for {:?}: {said:?}", began.elapsed()).into());
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn connect(stage: &Stage, shard: usize) -> Result<Client> {
    let mut client = stage.client_of(shard)?;
    client.batch_execute("SET statement_timeout = '4s'")?;
    Ok(client)
}
