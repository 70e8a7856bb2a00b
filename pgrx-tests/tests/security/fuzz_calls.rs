//! Looks for problems that nobody thought of: every routine of the extension, called by every level, with
//! hostile arguments.

use shardmaster_tests::cluster::{Cluster, DATABASE, MOVER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{LIMIT, cluster, plan, to_pending};
use shardmaster_tests::hostile::call::{Answer, Caller};
use shardmaster_tests::hostile::routines::{self, Routine};
use shardmaster_tests::hostile::values::{CONTEXTS, hostile, plausible};
use shardmaster_tests::random::{self, Random};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

/// The callers: PUBLIC, the levels, and the owner of the extension.
const CALLERS: [&str; 6] = ["nobody", "client", "monitor", "operator", "admin", "postgres"];

fn may_call(caller: &str, routine: &Routine) -> bool {
    let Some(level) = routine.level.as_deref() else { return caller == "postgres" };
    match caller {
        "postgres" | "admin" => true,
        "operator" => level != "admin",
        _ => routine.is_public || level == caller,
    }
}

/// Whether this is the first of the callers that may call it. The others run the same code.
fn is_first(caller: &str, routine: &Routine) -> bool {
    match routine.level.as_deref() {
        _ if routine.is_public => caller == "nobody",
        Some(level) => caller == level,
        None => caller == "postgres",
    }
}

/// Makes objects to call it on: splits in three phases, keyspaces of each strategy, slots, and two shards
/// that no call names.
fn stage() -> Cluster {
    let key = "shardmaster.master_key_command = 'printf %064d 1'";
    let cluster =
        cluster(&["log_line_prefix = '%m [%p] %e %q%a '", "shardmaster.max_split_workers = 10", key]);
    let mut master = cluster.superuser().unwrap();
    for (server, name) in cluster.servers.iter().zip(["sane_a", "sane_b"]) {
        let mut owner = server.superuser(DATABASE).unwrap();
        owner
            .batch_execute(
                "CREATE SCHEMA sane; GRANT USAGE, CREATE ON SCHEMA sane TO app_owner;
                 CREATE TABLE sane.rows (key text, id int, PRIMARY KEY (key, id));
                 ALTER TABLE sane.rows OWNER TO app_owner",
            )
            .unwrap();
        let conninfo = server.conninfo(DATABASE, MOVER);
        master.execute("SELECT shard_add($1, $2, namespace => 'sane')", &[&name, &conninfo]).unwrap();
    }
    master
        .batch_execute(
            "SELECT shard_keyspace_add('buckets', 'hash', 8, 'bigint', ARRAY['shard_a', 'shard_b']);
             SELECT shard_keyspace_add('numbers', 'range', key_type => 'bigint');
             SELECT shard_table_add('readings', 'code', 'numbers');
             SELECT shard_assign_range(NULL, NULL, 'shard_a', 'numbers');
             SELECT shard_keyspace_add('ids', 'directory', key_type => 'uuid');
             SELECT shard_keyspace_add('sane', 'directory');
             SELECT shard_table_add('rows', 'key', 'sane');
             SELECT shard_add('gpu_1', kind => 'gpu', capacity => 100);
             SELECT shard_reserve_slot('gpu', 'held', 'stays', '1 h');
             SELECT shard_reserve_slot('gpu', 'taken', 'stays', '1 h');
             SELECT shard_confirm_slot(2, 'r');
             SELECT shard_assign_many(ARRAY['gone', 'planned'], 'shard_a');
             CREATE ROLE nobody LOGIN",
        )
        .unwrap();
    for level in ["client", "monitor", "operator", "admin"] {
        let grant = format!(
            "CREATE ROLE {level} LOGIN; SELECT shard_grant('{level}', '{level}'), shard_login_set('{level}', 'app')"
        );
        master.batch_execute(&grant).unwrap();
    }
    let done = Split::plan(&cluster, "shard_a", "shard_b", &["gone"]).unwrap();
    done.run(|_| ()).unwrap();
    done.finish(LIMIT).unwrap();
    to_pending(&plan(&cluster));
    Split::plan(&cluster, "shard_a", "shard_b", &["planned"]).unwrap();
    cluster
}

/// Views that everybody may read who may call the function of that name, and that nobody can write. The
/// server refuses writes to a view.
const IS_LOOKED_AT: [&str; 2] = ["shard_splits", "shard_guards"];

/// Collects all problems, which are reported together.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn note(&mut self, answer: shardmaster_tests::Result<Answer>) -> Option<Answer> {
        answer.map_err(|wrong| self.0.push(wrong.to_string())).ok()
    }

    /// A caller without the right must get 42501.
    fn must_be_refused(&mut self, caller: &str, call: &str, answer: Option<Answer>) {
        if answer.is_some_and(|answer| answer.as_deref() != Some("42501")) {
            self.0.push(format!("{caller}: {call}: not refused"));
        }
    }
}

/// If a role has USAGE on the schema, the server may answer before it checks the right. That is the first of `calls`.
fn is_answered_before(routine: &Routine, at: usize, answer: &Option<Answer>) -> bool {
    match answer {
        Some(Some(_)) => routine.is_for_server,
        Some(None) => routine.is_strict && at == 1 && !routine.parameters.is_empty(),
        None => false,
    }
}

/// Nobody can write to a view, or to the column of an identity. The server says so first.
fn is_unwritable(kind: char, touch: &str, answer: &Option<Answer>) -> bool {
    let Some(Some(state)) = answer else { return false };
    !touch.starts_with("SELECT") && (kind == 'v' || state == "428C9")
}

/// Returns calls: the best arguments, NULL everywhere, and each argument in turn with hostile values.
fn calls(routine: &Routine) -> Vec<String> {
    let best: Vec<String> = routine.parameters.iter().map(|p| plausible(p)[0].clone()).collect();
    let nulls: Vec<String> = routine.parameters.iter().map(|p| format!("NULL::{}", p.type_name)).collect();
    let mut calls = vec![routine.call(&best), routine.call(&nulls)];
    for (at, parameter) in routine.parameters.iter().enumerate() {
        for value in hostile(parameter) {
            let mut arguments = best.clone();
            arguments[at] = value;
            calls.push(routine.call(&arguments));
        }
    }
    calls
}

fn at_random(routine: &Routine, random: &mut Random) -> String {
    let mut pick = |parameter| {
        let values = if random.percent(65) { plausible(parameter) } else { hostile(parameter) };
        random.one_of(&values).clone()
    };
    let arguments: Vec<String> = routine.parameters.iter().map(&mut pick).collect();
    routine.call(&arguments)
}

/// The number of random calls for each routine and caller. More calls find more.
fn rounds() -> usize {
    std::env::var("SHARDMASTER_HOSTILE_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(at_most(1).min(4))
}

#[test]
fn every_routine_answers_everybody_clearly() {
    let cluster = stage();
    let mut random = Random::new(random::seed());
    let mut superuser = cluster.superuser().unwrap();
    let routines = routines::all(&mut superuser).unwrap();
    assert!(routines.len() > 80, "{}", routines.len());
    for parameter in routines.iter().flat_map(|routine| &routine.parameters) {
        assert!(!hostile(parameter).is_empty(), "no values of type {}", parameter.type_name);
    }
    let mut found = Findings::default();
    for name in CALLERS {
        let mut caller = Caller::new(&cluster.master, name).unwrap();
        for routine in &routines {
            if !may_call(name, routine) {
                for (at, call) in calls(routine).iter().take(2).enumerate() {
                    let answer = found.note(caller.make("BEGIN", call));
                    if !is_answered_before(routine, at, &answer) {
                        found.must_be_refused(name, call, answer);
                    }
                }
                continue;
            }
            if is_first(name, routine) {
                for call in calls(routine) {
                    found.note(caller.make("BEGIN", &call));
                }
            }
            for _ in 0..rounds() {
                let begin = *random.one_of::<&str>(CONTEXTS);
                found.note(caller.make(begin, &at_random(routine, &mut random)));
            }
        }
        for (relation, kind, column) in routines::relations(&mut superuser).unwrap() {
            for touch in routines::touches(&relation, kind, &column) {
                let answer = found.note(caller.make("BEGIN", &touch));
                let is_answered = is_unwritable(kind, &touch, &answer);
                if name != "postgres" && !is_answered && !IS_LOOKED_AT.contains(&relation.as_str()) {
                    found.must_be_refused(name, &touch, answer);
                }
            }
        }
    }
    // Committed calls stay, so each call finds what the others have made.
    for _ in 0..rounds() * 2 {
        for name in ["client", "operator", "admin"] {
            let mut caller = Caller::new(&cluster.master, name).unwrap();
            for routine in routines.iter().filter(|routine| is_first(name, routine)) {
                found.note(caller.commit(&at_random(routine, &mut random)));
            }
        }
    }
    assert!(found.0.is_empty(), "{} found:\n{}", found.0.len(), found.0.join("\n"));
    assert_sane(&cluster);
}

/// Checks that the server has survived, and that everything works.
fn assert_sane(cluster: &Cluster) {
    let log = std::fs::read_to_string(cluster.master.log_path()).unwrap();
    for wrong in ["PANIC", "panicked", "terminated by signal", "stack backtrace", "] XX"] {
        let line = log.lines().find(|line| line.contains(wrong));
        assert_eq!(line, None, "{wrong}");
    }
    let mut master = cluster.superuser().unwrap();
    // Splits, guards and tables that the calls have made may well wait for another call.
    let ill = "SELECT string_agg(item || ': ' || value, E'\\n') FROM shard_status()
                WHERE NOT ok AND item !~ '^(split [0-9]|guard of |lookup index |reference table |decisions of )'";
    let mut told = None;
    let well = wait::until("shard_status() to be all ok", LIMIT, || {
        told = master.query_one(ill, &[])?.get::<_, Option<String>>(0);
        Ok(told.is_none().then_some(()))
    });
    assert!(well.is_ok(), "{well:?}:\n{told:?}");
    master.batch_execute("SELECT shard_assign('fresh', 'sane_a', 'sane')").unwrap();
    let mut source = cluster.servers[0].superuser(DATABASE).unwrap();
    source.batch_execute("INSERT INTO sane.rows VALUES ('fresh', 1)").unwrap();
    let plan = "SELECT shard_split_plan('sane_a', 'sane_b', ARRAY['fresh'], keyspace => 'sane')";
    let split = Split::plan_by(cluster, plan).unwrap();
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
    let mut client = cluster.master.connect(DATABASE, "client").unwrap();
    let route = "SELECT shard_of('fresh', keyspace => 'sane')";
    assert_eq!(client.query_one(route, &[]).unwrap().get::<_, String>(0), "sane_b");
}
