//! The reasons why a statement does not run on all shards. Arguments run from the whole to its part: execution, shard,
//! what is there.

use crate::error::{Failure, SqlState};

pub fn ends_transaction(word: &str) -> Failure {
    Failure::new(SqlState::INVALID_VALUE, format!("cannot run {word} on the shards"))
        .hint("It runs in a transaction on each shard, which commits when it succeeds.")
}

pub fn copies_with_client() -> Failure {
    Failure::new(SqlState::UNSUPPORTED, "cannot run COPY from or to a client on the shards")
        .hint("No client is there to send or receive rows. Use shard_query() to read, and INSERT to write.")
}

pub fn no_statement() -> Failure {
    Failure::new(SqlState::INVALID_VALUE, "no statement is given").hint("Give one statement.")
}

pub fn no_active_shard() -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, "no shard is active").hint("shard_set_status() makes one active.")
}

pub fn split_on_shard(shard: &str, split: i64) -> Failure {
    Failure::new(SqlState::IN_USE, format!("split {split} is under way on shard \"{shard}\"")).hint(format!(
        "Wait until it ends, or name other shards. SELECT shard_split_to_call({split}) shows what it waits for."
    ))
}

pub fn run_on_shard(shard: &str, run: i64) -> Failure {
    Failure::new(SqlState::IN_USE, format!("run {run} of misplaced rows is on shard \"{shard}\"")).hint(
        format!("Wait until it ends, name other shards, or abandon it with shard_misplaced_abandon({run})."),
    )
}

pub fn started_by_other(id: i64, role: &str) -> Failure {
    let message = format!("execution {id} was started by role \"{role}\"");
    Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
        .hint(format!("Role \"{role}\" can resume or abandon it."))
}

pub fn other_master(id: i64) -> Failure {
    let message = format!("execution {id} was begun by another master, of which this one is a copy");
    Failure::new(SqlState::NOT_IN_STATE, message).hint(format!(
        "If this master replaces a master that is gone for good, CALL shard_execute_resume({id}, retry => true). To abandon it, SELECT shard_execute_abandon({id}, force => true)."
    ))
}

pub fn busy(id: i64) -> Failure {
    Failure::new(SqlState::IN_USE, format!("another session is running execution {id}"))
        .hint("Wait until it ends, or cancel it.")
}

pub fn not_held(id: i64) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("this session is not running execution {id}"))
        .hint(format!("CALL shard_execute_resume({id}) continues it."))
}

pub fn unknown_outcome(id: i64, shard: &str) -> Failure {
    let message = format!("execution {id}: it is not known whether shard \"{shard}\" has done it");
    Failure::new(SqlState::NOT_IN_STATE, message).hint(format!(
        "Look at the shard. CALL shard_execute_resume({id}, retry => true) runs it again there; shard_execute_abandon({id}) abandons it."
    ))
}

pub fn no_schema_usage(shard: &str, namespace: &str) -> Failure {
    let message = format!("shard \"{shard}\": its login cannot use schema \"{namespace}\"");
    Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, message).hint(format!(
        "Names without a schema would mean other tables. GRANT USAGE ON SCHEMA \"{namespace}\" to it there."
    ))
}

const SEE_THERE: &str = "See on the shard whether it was done.";

pub fn transaction_ended(shard: &str) -> Failure {
    let message = format!("shard \"{shard}\": the statement has ended its transaction");
    Failure::new(SqlState::NOT_IN_STATE, message).hint(SEE_THERE)
}

pub fn other_server(shard: &str) -> Failure {
    let message = format!("shard \"{shard}\" is not the server that ran the statement");
    Failure::new(SqlState::NOT_IN_STATE, message).hint(SEE_THERE)
}

pub fn forgotten(shard: &str) -> Failure {
    let message = format!("shard \"{shard}\" does not know the outcome of the transaction");
    Failure::new(SqlState::NOT_IN_STATE, message).hint(SEE_THERE)
}

pub fn master_may_lack_outcome(shard: &str) -> Failure {
    let message =
        format!("shard \"{shard}\": the master was restored or failed over, and may lack the outcome");
    Failure::new(SqlState::NOT_IN_STATE, message).hint(SEE_THERE)
}

pub fn interrupted(shard: &str) -> Failure {
    let message = format!("shard \"{shard}\": it was interrupted, and ran outside of a transaction");
    Failure::new(SqlState::NOT_IN_STATE, message).hint(SEE_THERE)
}

pub fn master_may_lack_decision(shard: &str, gid: &str) -> Failure {
    let message = format!(
        "shard \"{shard}\" has \"{gid}\" prepared, and the master, restored or failed over, may lack the decision"
    );
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("See on the other shards whether it was committed. If so, COMMIT PREPARED it there, else ROLLBACK PREPARED. Then resume.")
}

pub fn in_progress(shard: &str) -> Failure {
    Failure::new(SqlState::IN_USE, format!("shard \"{shard}\": the transaction is still in progress"))
        .hint("Its pg_stat_activity shows what the session waits for.")
}

pub fn rolled_back(shard: &str) -> Failure {
    let message = format!("shard \"{shard}\": the transaction was rolled back");
    Failure::new(SqlState::SERIALIZATION_FAILURE, message)
}

pub fn too_few_slots(shard: &str, most: i64, free: i64, needed: i64) -> Failure {
    let message = format!(
        "shard \"{shard}\": {free} of its max_prepared_transactions = {most} are free, and {needed} are needed"
    );
    Failure::new(SqlState::NOT_IN_STATE, message).hint(format!(
        "Set max_prepared_transactions there to {} or more and restart the server. Its pg_prepared_xacts shows who uses the others.",
        most - free + needed
    ))
}

pub fn not_prepared(shard: &str) -> Failure {
    let message = format!("shard \"{shard}\": the transaction was not prepared");
    Failure::new(SqlState::SERIALIZATION_FAILURE, message)
}

pub fn rolled_back_elsewhere(shard: &str) -> Failure {
    let message = format!(
        "shard \"{shard}\": somebody else rolled back its prepared transaction, which was to be committed"
    );
    Failure::new(SqlState::NOT_IN_STATE, message).hint("Find out who ends prepared transactions there.")
}

pub fn other_beginner(id: i64, role: &str, has: &str) -> Failure {
    let message = format!(
        "execution {id} was begun with the logins of role \"{role}\", and the caller has those of \"{has}\""
    );
    Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, message).hint(format!(
        "A role that has them can resume it. Otherwise abandon it with shard_execute_abandon({id}) and begin again."
    ))
}

pub fn beginner_is_gone(id: i64) -> Failure {
    let message = format!("the role whose logins execution {id} was begun with no longer exists");
    Failure::new(SqlState::UNDEFINED_OBJECT, message).hint(by_hand(id))
}

pub fn other_login(shard: &str, was: &str, now: &str) -> Failure {
    let message =
        format!("shard \"{shard}\": it was begun there as \"{was}\", and the login is now \"{now}\"");
    Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, message).hint(format!(
        "Call shard_login_set() with \"{was}\" until it has ended. No other login may end it there."
    ))
}

fn by_hand(id: i64) -> String {
    format!(
        "Look in pg_prepared_xacts of the shards for the gid of shard_executions({id}). End it there by hand, then call shard_execute_abandon({id}, force => true)."
    )
}

/// The error for an execution in two phases on a shard where it cannot be ended yet.
pub fn not_settled(why: Failure, is_decided: bool) -> Failure {
    let what = if is_decided {
        "It is to be committed. The worker does that as soon as the shard allows it."
    } else {
        "It is to be rolled back. The worker does that as soon as the shard allows it."
    };
    why.more_hint(what)
}

/// The error for an abandonment that would leave something on a shard.
pub fn not_abandoned(id: i64, mut why: Failure) -> Failure {
    why.message = format!("execution {id}: {}", why.message);
    let more = format!("force => true abandons it nevertheless. {}", by_hand(id));
    why.more_hint(&more)
}

/// Adds the execution's number, because what is stored of it stays, and its reader needs to know which one it is.
pub fn of_execution(id: i64, mut why: Failure) -> Failure {
    let whose = format!("execution {id}: ");
    if !why.message.starts_with(&whose) {
        why.message.insert_str(0, &whose);
    }
    let goes_on =
        format!("CALL shard_execute_resume({id}) continues it; shard_executions({id}) shows its progress.");
    why.more_hint(&goes_on)
}
