//! What a copy of a shard has kept: a clone of its disk, or a standby that was promoted beside it, refuses what splits
//! have moved away from the original, while this master knows only the redirect, or the side of a split, of the
//! original.

use crate::agent::error::Result;
use crate::agent::one_database::shares_locks_within;
use crate::agent::state::{key_list, moved_keys};
use crate::catalog::database_location;
use crate::catalog::database_location::Sameness;
use crate::catalog::redirect as stored;
use crate::catalog::shard::{self, Shard};
use crate::remote::Connection;
use crate::server::txn::in_one;
use std::collections::BTreeMap;
use std::time::Duration;

/// The limit for the answer of a shard that the current call does not otherwise need.
const LIMIT: Duration = Duration::from_secs(3);

/// The relation of a database to another shard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Is {
    It,
    ACopy,
    /// The other shard does not answer.
    Unknown,
}

/// The database of a session, compared with shards that the master knows.
pub struct Copies<'a> {
    shard: &'a Shard,
    known: BTreeMap<String, Is>,
}

impl Copies<'_> {
    pub fn of(shard: &Shard) -> Copies<'_> {
        Copies { shard, known: BTreeMap::new() }
    }

    /// Whether it is where another shard is. The servers decide, and each is asked once: what is recorded of them may
    /// be outdated.
    pub fn is(&mut self, connection: &mut Connection, original: &str) -> Is {
        if let Some(is) = self.known.get(original) {
            return *is;
        }
        let other = in_one(|| {
            let other = shard::by_key(original).ok()?;
            Some((database_location::database(self.shard, &other) == Sameness::Same, other))
        });
        let is = match other {
            None => Is::Unknown,
            Some((is_same, other)) if is_same || other.shard_key == self.shard.shard_key => Is::It,
            Some((_, other)) => match shares_locks_within(connection, &other, LIMIT) {
                Ok(true) => Is::It,
                Ok(false) => Is::ACopy,
                Err(_) => Is::Unknown,
            },
        };
        self.known.insert(original.to_owned(), is);
        is
    }
}

/// Returns splits whose keys a database refuses as a copy of the shard that they have left, each with that shard.
pub fn redirected(connection: &mut Connection, shard: &Shard) -> Result<Vec<(i64, String)>> {
    let mut copies = Copies::of(shard);
    let mut found = Vec::new();
    for redirect in key_list::redirects(connection)? {
        for (id, token) in moved_keys::splits(connection, &redirect)? {
            let Some(original) =
                in_one(|| stored::known_at(stored::RedirectOwner { split: id, token: &token }))
            else {
                continue;
            };
            if copies.is(connection, &original) == Is::ACopy {
                found.push((id, original));
            }
        }
    }
    Ok(found)
}
