//! Rights and secrets, and who gets them, with hostile owners of tables, hostile texts, and compromised shards.

mod byzantine_shard;
mod caller_role;
mod compromised_shards;
mod credentials;
mod extension_tables;
mod floods;
mod fuzz_calls;
mod hostile_texts;
mod keychain;
mod minimal_mover;
mod out_of_scope_rows;
mod owner_code;
mod owner_code_changes;
mod owner_expressions;
mod owner_lock_races;
mod owner_object_swaps;
mod owner_sequences;
mod owner_types;
mod parties;
mod privilege_escalation;
mod privilege_levels;
mod search_path;
mod secrets;
mod sql_injection;
