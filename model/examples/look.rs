use shardmaster_model::*;
use shardmaster_model::state::Cause;
use stateright::{Checker, Model};
fn main(){
  let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
  let get=|i:usize,d:u64| a.get(i).copied().unwrap_or(d);
  let without=std::env::var("RULE").ok().map(|r| *rules::Rule::ALL.iter().find(|x| format!("{x:?}")==r).unwrap());
  let b = Bounds{writers:get(0,1) as usize, old_snapshots:get(1,0)==1, calls:get(2,1) as u8, rolls_back:get(3,0)==1, finishes:get(4,0)==1, faults:get(5,0) as u8, setbacks:get(6,0) as u8, causes:&[Cause::Standby,Cause::Disk,Cause::Asynchronous], shards_set_back:[get(7,1)==1,get(8,1)==1], master_set_back:get(9,1)==1, legs:get(10,1) as u8};
  let m=Split{bounds:b, without};
  let t=std::time::Instant::now();
  if get(11,0)==1 { let w=liveness::check(&m); println!("live {} states, stuck {} {:?}",w.states,w.stuck_states,t.elapsed()); if let Some(x)=w.stuck{ for y in x{println!("  {y:?}")} println!("{:?}",w.stuck_in)} return;}
  let c=m.checker().threads(2).finish_when(stateright::HasDiscoveries::AnyFailures).spawn_bfs().join();
  println!("{} unique, {:?}, depth {}", c.unique_state_count(), t.elapsed(), c.max_depth());
  for (n,p) in c.discoveries(){ println!("== {n}"); let v=p.into_vec(); for (_,x) in &v{ if let Some(x)=x {println!("  {x:?}")}} println!("{:?}", v.last().unwrap().0)}
}
