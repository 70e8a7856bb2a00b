//! The position where a comparison continues: the rows of the source are looked for on the target, partition by
//! partition, and then the other way round. A partition that is added meanwhile is neither missed nor read twice,
//! whatever its number.

use serde::{Deserialize, Serialize};

/// The side whose rows are looked for on the other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadSide {
    #[default]
    Source,
    Target,
    /// Both at once, by ranges of the key.
    Ranges,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct VerifyPosition {
    pub read: ReadSide,
    /// The finished leaves of this side, by oid.
    pub done: Vec<String>,
    /// The leaf that is being read, by oid.
    pub leaf: Option<String>,
    /// The leaf's next block.
    pub block: i64,
    /// The file that this is a block of.
    #[serde(default)]
    pub file: Option<String>,
    /// The key up to which ranges are done; empty for the first range.
    #[serde(default)]
    pub after: Vec<String>,
}

impl VerifyPosition {
    /// Parses a stored position. One that cannot be read begins anew.
    pub fn parse(text: &str) -> VerifyPosition {
        serde_json::from_str(text).unwrap_or_default()
    }

    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the leaf to continue with, of those that exist, or None if this side is done.
    pub fn next_leaf(&mut self, leaves: &[String]) -> Option<String> {
        let goes_on = self.leaf.take().filter(|leaf| leaves.contains(leaf));
        if goes_on.is_none() {
            self.block = 0;
        }
        self.leaf = goes_on.or_else(|| leaves.iter().find(|leaf| !self.done.contains(leaf)).cloned());
        self.leaf.clone()
    }

    /// Notes the file of the leaf. Returns false if what was read was of another file, so that it is unknown which
    /// rows were read.
    pub fn is_of(&mut self, file: Option<String>) -> bool {
        let is_same = self.block == 0 || self.file == file;
        self.file = file;
        is_same
    }

    /// Notes that the leaf was read up to a block, or to its end if `to` is None.
    pub fn passed(&mut self, to: Option<i64>) {
        match to {
            Some(block) => self.block = block,
            None => {
                self.done.extend(self.leaf.take());
                self.block = 0;
            }
        }
    }

    /// Turns to the other side. Returns false if none is left.
    pub fn turn(&mut self) -> bool {
        let is_first = self.read == ReadSide::Source;
        if is_first {
            *self = VerifyPosition { read: ReadSide::Target, ..VerifyPosition::default() };
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oids(list: &[&str]) -> Vec<String> {
        list.iter().map(|oid| (*oid).to_owned()).collect()
    }

    #[test]
    fn a_walk_comes_past_each_leaf_once() {
        let mut position = VerifyPosition::default();
        let mut seen = Vec::new();
        let leaves = oids(&["7", "3"]);
        while let Some(leaf) = position.next_leaf(&leaves) {
            seen.push((leaf, position.block));
            position.passed((position.block < 10).then_some(position.block + 10));
            // Only what is stored between two slices is kept.
            position = VerifyPosition::parse(&position.to_text());
        }
        let expected = [("7", 0), ("7", 10), ("3", 0), ("3", 10)];
        assert_eq!(seen, expected.map(|(leaf, block)| (leaf.to_owned(), block)));
        assert!(position.turn() && position.read == ReadSide::Target && position.done.is_empty());
        assert!(!position.turn());
    }

    #[test]
    fn leaves_that_come_and_go_are_neither_missed_nor_stuck_to() {
        let mut position = VerifyPosition::default();
        assert_eq!(position.next_leaf(&oids(&["5", "9"])).as_deref(), Some("5"));
        position.passed(Some(4));
        // The leaf was detached; an older table was attached.
        assert_eq!(position.next_leaf(&oids(&["2", "9"])).as_deref(), Some("2"));
        assert_eq!(position.block, 0);
        position.passed(None);
        assert_eq!(position.next_leaf(&oids(&["2", "9"])).as_deref(), Some("9"));
        position.passed(None);
        assert_eq!(position.next_leaf(&oids(&["2", "9"])), None);
    }

    #[test]
    fn a_block_is_one_of_its_file() {
        let mut position = VerifyPosition::default();
        position.next_leaf(&oids(&["5"]));
        let file = |name: &str| Some(name.to_owned());
        assert!(position.is_of(file("1")), "nothing was read yet");
        position.passed(Some(4));
        position = VerifyPosition::parse(&position.to_text());
        assert!(position.is_of(file("1")));
        assert!(!position.is_of(file("2")));
    }

    #[test]
    fn what_cannot_be_read_begins_anew() {
        for text in ["", "{}", "[1]", "{\"read\": \"nowhere\"}"] {
            assert_eq!(VerifyPosition::parse(text), VerifyPosition::default(), "{text}");
        }
    }
}
