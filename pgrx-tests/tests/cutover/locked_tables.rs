//! A step that waits for another session's lock says which table it is on, and which session has it.

use shardmaster_tests::cluster::DATABASE;
use shardmaster_tests::fixture::{LIMIT, cluster, plan, rows, to_pending};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

/// Waits until the split reports that it waits for something with all of these words.
fn waits_for(split: &Split<'_>, words: &[&str]) {
    let mut last = None;
    wait::until("what the split waits for", LIMIT, || {
        last = split.metric::<Option<String>>("waiting_for")?;
        let said = last.as_deref().unwrap_or_default();
        Ok(words.iter().all(|word| said.contains(word)).then_some(()))
    })
    .unwrap_or_else(|e| panic!("{e}: {last:?}, which lacks one of {words:?}"));
}

#[test]
fn a_finish_that_waits_for_a_table_says_which_and_for_whom() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let mut somebody = cluster.servers[0].superuser(DATABASE).unwrap();
    for statement in ["SET application_name = 'nightly'", "BEGIN", "LOCK TABLE items"] {
        somebody.batch_execute(statement).unwrap();
    }
    split.call("finish").unwrap();
    let holder = [
        "public.items",
        "shard \"shard_a\"",
        "by pid",
        "user postgres",
        "application nightly",
        "idle after LOCK",
        "open for",
    ];
    waits_for(&split, &holder);
    // For other tables, and for rows, nobody knows whether this session is the reason.
    somebody.batch_execute("ROLLBACK; BEGIN; SELECT FROM items WHERE tenant = 'moves' FOR UPDATE").unwrap();
    let perhaps =
        ["canceling statement due to lock timeout, perhaps for rows of public.items by pid", "nightly"];
    waits_for(&split, &perhaps);
    assert_eq!(split.metric::<Option<String>>("error_message").unwrap(), None);
    somebody.batch_execute("ROLLBACK").unwrap();
    split.wait("finished", LIMIT).unwrap();
    assert_eq!((rows(&cluster, 0).len(), rows(&cluster, 1).len()), (0, 300));
}
