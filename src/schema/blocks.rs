//! Numbers that one shard alone gives out: they do not count as a difference between two shards, and a copy gets its
//! own.

use super::object::Object;
use crate::catalog::number_block::GivenBlock;
use crate::numbers::block::Block;
use std::collections::{BTreeMap, BTreeSet};

/// The placeholder for a number of the shard's own. It is followed by the remainder, which matters if the sequence
/// counts by more than 1. In statements for another shard, it also contains the first number of its block, so that
/// sequences of two blocks stay apart.
const OWN: &str = "(own";
/// The kinds of objects whose texts contain the options of a sequence.
const KINDS: [&str; 4] = ["sequence", "table", "column", "partition"];
const WORDS: [&str; 4] = ["START", "INCREMENT", "MINVALUE", "MAXVALUE"];

/// Replaces the numbers that a shard has for itself in its sequences.
pub fn leave_out(objects: &mut [Object], own: &[GivenBlock]) {
    for object in objects.iter_mut().filter(|object| KINDS.contains(&object.kind.as_str())) {
        object.definition = without(&object.definition, own, |_| String::new());
        object.statement =
            object.statement.as_deref().map(|statement| without(statement, own, |first| format!(" {first}")));
    }
}

fn without(text: &str, own: &[GivenBlock], of_block: impl Fn(i64) -> String) -> String {
    replaced(text, |[start, increment, min, max]| {
        let [start, min, max]: [i64; 3] = [start.parse().ok()?, min.parse().ok()?, max.parse().ok()?];
        let like = start.checked_rem_euclid(increment.parse().ok()?)?;
        let given = own.iter().find(|given| given.has([min, max])).filter(|_| start == min)?;
        let placeholder = format!("{OWN} {like}{})", of_block(given.range[0]));
        Some([placeholder.clone(), increment.to_owned(), placeholder.clone(), placeholder])
    })
}

/// Returns the blocks in a statement's placeholders, by their first numbers.
pub fn wanted(statement: &str) -> BTreeSet<i64> {
    let begins = format!("START {OWN} ");
    let found = statement.split(&begins).skip(1);
    found.filter_map(|rest| Some(read(rest.split_once(')')?.0)?.1)).collect()
}

/// Parses a remainder and the first number of a block.
fn read(text: &str) -> Option<(i64, i64)> {
    let (like, first) = text.trim().split_once(' ')?;
    Some((like.parse().ok()?, first.parse().ok()?))
}

/// Returns the statement with the numbers of other blocks.
pub fn fill(statement: &str, blocks: &BTreeMap<i64, Block>) -> String {
    replaced(statement, |[start, increment, min, max]| {
        let (like, first) = read(start.strip_prefix(OWN)?.strip_suffix(')')?)?;
        let is_wanted = min == start && max == start;
        let [first, last] =
            blocks.get(&first)?.of_sequence(increment.parse().ok()?, like).filter(|_| is_wanted)?;
        Some([first.to_string(), increment.to_owned(), first.to_string(), last.to_string()])
    })
}

/// Returns the text with the options of its sequences replaced, where `others` returns new ones.
fn replaced(text: &str, others: impl Fn([&str; 4]) -> Option<[String; 4]>) -> String {
    let mut made = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("START ") {
        let (before, from) = rest.split_at(at);
        made += before;
        match options(from).and_then(|(values, length)| Some((others(values)?, length))) {
            Some((values, length)) => {
                let pairs: Vec<String> =
                    WORDS.iter().zip(&values).map(|(word, value)| format!("{word} {value}")).collect();
                made += &pairs.join(" ");
                rest = &from[length..];
            }
            None => {
                let (word, behind) = from.split_at("START ".len());
                made += word;
                rest = behind;
            }
        }
    }
    made + rest
}

/// Returns the options at the start of a text, and their length.
fn options(text: &str) -> Option<([&str; 4], usize)> {
    let mut values = [""; 4];
    let mut length = 0;
    for (at, word) in WORDS.iter().enumerate() {
        let rest = text.get(length..)?;
        let rest =
            rest.strip_prefix(if at == 0 { "" } else { " " })?.strip_prefix(word)?.strip_prefix(' ')?;
        let end = if rest.starts_with(OWN) {
            rest.find(')')? + 1
        } else {
            rest.find([' ', ')', ';']).unwrap_or(rest.len())
        };
        values[at] = &rest[..end];
        length = text.len() - rest.len() + end;
    }
    Some((values, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(definition: &str) -> Object {
        Object {
            kind: "sequence".into(),
            name: "ids".into(),
            on_table: None,
            definition: definition.into(),
            statement: Some(format!("CREATE SEQUENCE ids {definition}")),
        }
    }

    fn left(definition: &str) -> Object {
        let own = GivenBlock { shard_key: "a".into(), range: [1000, 1999] };
        let mut objects = [object(definition)];
        leave_out(&mut objects, &[own]);
        objects.into_iter().next().unwrap()
    }

    #[test]
    fn a_block_is_left_out_and_another_one_filled_in() {
        let one = left("AS bigint START 1050 INCREMENT 50 MINVALUE 1050 MAXVALUE 1949 CACHE 1");
        let without = "AS bigint START (own 0) INCREMENT 50 MINVALUE (own 0) MAXVALUE (own 0) CACHE 1";
        assert_eq!(one.definition, without);
        let statement = one.statement.unwrap();
        assert_eq!(wanted(&statement), BTreeSet::from([1000]));
        let block = BTreeMap::from([(1000, Block { first: 2000, last: 2999 })]);
        let filled =
            "CREATE SEQUENCE ids AS bigint START 2050 INCREMENT 50 MINVALUE 2050 MAXVALUE 2949 CACHE 1";
        assert_eq!(fill(&statement, &block), filled);
        assert_eq!(wanted(filled), BTreeSet::new());
    }

    #[test]
    fn what_is_no_block_stays() {
        for text in [
            "AS bigint START 1 INCREMENT 1 MINVALUE 1 MAXVALUE 9223372036854775807 CACHE 1",
            "START 1001 INCREMENT 1 MINVALUE 1000 MAXVALUE 1999",
            "a text with START and START 5 in it",
            "id bigint GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME s START 7 INCREMENT 1 MINVALUE 7 MAXVALUE 9 CACHE 1)",
            "START ",
        ] {
            assert_eq!(left(text).definition, text);
            assert_eq!(fill(text, &BTreeMap::from([(1000, Block { first: 1, last: 10 })])), text);
        }
        let ends = "x START 1000 INCREMENT 1 MINVALUE 1000 MAXVALUE 1999)";
        assert_eq!(left(ends).definition, "x START (own 0) INCREMENT 1 MINVALUE (own 0) MAXVALUE (own 0))");
    }
}
