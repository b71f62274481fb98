//! The state directory spoiled, full, read-only; the wall clock set. The daemon at work on it.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stdout, reason = "what was spoiled, and what came of it")]

mod clock;
mod damage;
mod disk;

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use berth_tests::{Addresses, Answer, Caller, Node, Pod, process_start};

const STATE: &str = "/var/lib/berth";

fn v4(answer: &Answer) -> IpAddr {
    Addresses::of_result(&answer.result()).v4().into()
}

/// Everything that the daemon gives to who asks now, given back at once.
fn given_out(node: &Node, netns: &Pod) -> BTreeSet<IpAddr> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let caller = Caller::connect(&node.socket(), Duration::from_secs(10)).await;
        let mut given = BTreeSet::new();
        for number in 0.. {
            let (name, netns) = (format!("stranger-{number}"), netns.netns_text());
            match caller.allocate(&name, &netns, &name, process_start()).await {
                Ok(address) => assert!(given.insert(address.parse().unwrap()), "given twice"),
                Err(status) => {
                    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
                    break;
                }
            }
        }
        for number in 0..given.len() {
            caller.release(&format!("stranger-{number}"), process_start()).await.unwrap();
        }
        given
    })
}
