//! Why a statement is not run on all shards.

use crate::error::{Failure, SqlState};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ExecutionError {
    #[error("cannot run {0} on the shards")]
    Ends(String),
    #[error("cannot run COPY from or to a client on the shards")]
    Copies,
    #[error("no statement is given")]
    Empty,
    #[error("no shard is active")]
    NoShard,
    #[error("split {split} is under way on shard \"{shard}\"")]
    Split { split: i64, shard: String },
    #[error("run {run} of misplaced rows is on shard \"{shard}\"")]
    Run { run: i64, shard: String },
    #[error("execution {id} was started by role \"{role}\"")]
    Others { id: i64, role: String },
    #[error("execution {0} was begun by another master, of which this one is a copy")]
    OtherMaster(i64),
    #[error("execution {0} is carried out by another session")]
    Busy(i64),
    #[error("execution {0} is not carried out by this session")]
    NotHeld(i64),
    #[error("execution {id}: it is not known whether shard \"{shard}\" has done it")]
    Unknown { id: i64, shard: String },
    #[error("shard \"{shard}\": schema \"{namespace}\" is not there for its login")]
    OtherSchema { shard: String, namespace: String },
    #[error("shard \"{0}\": the statement has ended its transaction")]
    OtherTransaction(String),
    #[error("shard \"{0}\" is another server than it was when the statement was done")]
    OtherServer(String),
    #[error("shard \"{0}\" does not know what has become of the transaction")]
    Forgotten(String),
    #[error("shard \"{0}\": the master was restored or has failed over, and may lack that it was done")]
    Lacking(String),
    #[error(
        "shard \"{shard}\" has \"{gid}\" prepared, and the master, restored or failed over, may lack what was decided"
    )]
    Undecided { shard: String, gid: String },
    #[error("shard \"{0}\": the transaction is still in progress")]
    InProgress(String),
    #[error("shard \"{0}\": it was interrupted, and no transaction would have undone it")]
    Interrupted(String),
    #[error("shard \"{0}\": the transaction was rolled back")]
    RolledBack(String),
    #[error(
        "shard \"{shard}\": {free} of its max_prepared_transactions = {most} are free, and {needed} are needed"
    )]
    NotEnough { shard: String, most: i64, free: i64, needed: i64 },
    #[error("shard \"{0}\": the transaction was not prepared")]
    NotPrepared(String),
    #[error(
        "shard \"{0}\": its prepared transaction was rolled back by somebody else, though it was decided to commit"
    )]
    EndedElsewhere(String),
    #[error(
        "execution {id} was begun with the logins of role \"{role}\", and the caller has those of \"{has}\""
    )]
    OtherBeginner { id: i64, role: String, has: String },
    #[error("the role with whose logins execution {0} was begun is no longer there")]
    NobodyIsLeft(i64),
    #[error("shard \"{shard}\": it was begun there as \"{was}\", and the login is \"{now}\" by now")]
    OtherLogin { shard: String, was: String, now: String },
}

impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Failure {
        use ExecutionError as E;
        let (state, hint) = match &error {
            E::Ends(_) => (
                SqlState::INVALID_VALUE,
                "It is in a transaction of its own on each shard, which commits by itself.".to_owned(),
            ),
            E::Copies => (
                SqlState::UNSUPPORTED,
                "There is no client that would take or give its rows: shard_query() reads, INSERT writes."
                    .to_owned(),
            ),
            E::OtherMaster(id) => (
                SqlState::NOT_IN_STATE,
                format!(
                    "If this master replaces the other one, and the other one is gone for good: CALL shard_execute_resume({id}, retry => true), or give it up with shard_execute_abandon({id}, force => true)."
                ),
            ),
            E::OtherSchema { namespace, .. } => (
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!(
                    "Names without a schema would mean other tables: GRANT USAGE ON SCHEMA \"{namespace}\" to it there."
                ),
            ),
            E::Empty => (SqlState::INVALID_VALUE, "Give one statement.".to_owned()),
            E::NoShard => (SqlState::NOT_IN_STATE, "shard_set_status() makes one active.".to_owned()),
            E::Split { split, .. } => (
                SqlState::IN_USE,
                format!(
                    "Wait for its end, or name other shards: SELECT shard_split_to_call({split}) says what it waits for."
                ),
            ),
            E::Run { run, .. } => (
                SqlState::IN_USE,
                format!(
                    "Wait for its end, name other shards, or give it up with shard_misplaced_abandon({run})."
                ),
            ),
            E::OtherBeginner { id, .. } => (
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!(
                    "Let somebody who has them resume it, or give it up with shard_execute_abandon({id}) and begin anew."
                ),
            ),
            E::Others { role, .. } => {
                (SqlState::INSUFFICIENT_PRIVILEGE, format!("Let \"{role}\" resume it, or abandon it."))
            }
            E::Busy(_) => (SqlState::IN_USE, "Wait for its end, or cancel it.".to_owned()),
            E::NotHeld(id) => {
                (SqlState::NOT_IN_STATE, format!("CALL shard_execute_resume({id}) carries it out."))
            }
            E::Unknown { id, .. } => (
                SqlState::NOT_IN_STATE,
                format!(
                    "Look at the shard. CALL shard_execute_resume({id}, retry => true) runs it again there, shard_execute_abandon({id}) gives it up."
                ),
            ),
            E::Undecided { .. } => (
                SqlState::NOT_IN_STATE,
                "Look at the other shards whether it was done: then COMMIT PREPARED it there, else ROLLBACK PREPARED, and resume."
                    .to_owned(),
            ),
            E::OtherTransaction(_)
            | E::OtherServer(_)
            | E::Forgotten(_)
            | E::Lacking(_)
            | E::Interrupted(_) => {
                (SqlState::NOT_IN_STATE, "Look at the shard whether it was done.".to_owned())
            }
            E::InProgress(_) => {
                (SqlState::IN_USE, "See in its pg_stat_activity what the session waits for.".to_owned())
            }
            E::RolledBack(_) => (SqlState::SERIALIZATION_FAILURE, String::new()),
            E::NotEnough { most, free, needed, .. } => (
                SqlState::NOT_IN_STATE,
                format!(
                    "Set max_prepared_transactions there to {} or more, restart the server, and see in its pg_prepared_xacts who has the others.",
                    most - free + needed
                ),
            ),
            E::NotPrepared(_) => (SqlState::SERIALIZATION_FAILURE, String::new()),
            E::EndedElsewhere(_) => (
                SqlState::NOT_IN_STATE,
                "Others have done it: look who ends prepared transactions there.".to_owned(),
            ),
            E::NobodyIsLeft(id) => (SqlState::UNDEFINED_OBJECT, by_hand(*id)),
            E::OtherLogin { was, .. } => (
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("shard_login_set() with \"{was}\", until it is settled: nobody else ends it there."),
            ),
        };
        let failure = Failure::new(state, error.to_string());
        if hint.is_empty() { failure } else { failure.hint(hint) }
    }
}

fn by_hand(id: i64) -> String {
    format!(
        "See in pg_prepared_xacts of the shards what shard_executions({id}) has in gid, end it there by hand, and call shard_execute_abandon({id}, force => true)."
    )
}

/// Of one in two phases, on a shard that does not let it be ended yet.
pub fn not_settled(why: Failure, is_decided: bool) -> Failure {
    let what = match is_decided {
        true => "It was decided to commit: the worker does that as soon as the shard lets it.",
        false => "It was not decided: the worker rolls it back as soon as the shard lets it.",
    };
    let hint = why.hint.as_deref().map_or(what.to_owned(), |hint| format!("{hint} {what}"));
    why.hint(hint)
}

/// Something of it would be left on a shard.
pub fn not_abandoned(id: i64, mut why: Failure) -> Failure {
    why.message = format!("execution {id}: {}", why.message);
    let more = format!("With force => true it is given up all the same. {}", by_hand(id));
    why.hint = Some(why.hint.map_or(more.clone(), |hint| format!("{hint} {more}")));
    why
}

/// What is stored stays, so whoever reads it has to know of what.
pub fn of_execution(id: i64, mut why: Failure) -> Failure {
    let whose = format!("execution {id}: ");
    if !why.message.starts_with(&whose) {
        why.message.insert_str(0, &whose);
    }
    let goes_on = format!(
        "CALL shard_execute_resume({id}) goes on with it; shard_executions({id}) says how far it is."
    );
    why.hint = Some(why.hint.map_or(goes_on.clone(), |hint| format!("{hint} {goes_on}")));
    why
}
