//! Reads the records of tests and prints docs/internals/reliability.md. The argument says where and when the
//! tests ran.

use shardmaster_tests::reliability;
use std::io::Read;

fn main() -> std::io::Result<()> {
    let mut lines = String::new();
    std::io::stdin().read_to_string(&mut lines)?;
    print!("{}", reliability::page(&lines, &std::env::args().nth(1).unwrap_or_default()));
    Ok(())
}
