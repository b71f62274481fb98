use proptest::prelude::*;

use super::*;

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn source(cidrs: &[&str], excluded: &[&str]) -> LocalAddresses {
    LocalAddresses::new(&nets(cidrs), &nets(excluded)).unwrap()
}

fn wanted(text: &str) -> AddressSet {
    text.parse::<IpAddr>().unwrap().into()
}

async fn all(source: &LocalAddresses) -> Vec<String> {
    let many = NonZeroUsize::new(10_000).unwrap();
    source.assign(many).await.unwrap().iter().map(|it| it.addresses.to_string()).collect()
}

#[tokio::test]
async fn network_gateway_broadcast_and_exclusions_are_never_given() {
    let source = source(&["10.1.0.0/29"], &["10.1.0.3/32"]);
    assert_eq!(source.capacity(), 4);
    assert_eq!(all(&source).await, ["10.1.0.2", "10.1.0.4", "10.1.0.5", "10.1.0.6"]);
    let one = NonZeroUsize::MIN;
    assert_eq!(source.assign(one).await, Err(SourceError::Exhausted));
}

#[tokio::test]
async fn a_dual_stack_resource_is_a_pair_and_the_smaller_family_bounds_them() {
    let source = source(&["10.1.0.0/29", "fd00::/64"], &[]);
    assert_eq!(source.capacity(), 5);
    let pairs = all(&source).await;
    assert_eq!(pairs.len(), 5);
    assert_eq!(pairs[0], "10.1.0.2,fd00::2");
}

#[tokio::test]
async fn what_came_back_is_given_again_last() {
    let source = source(&["10.1.0.0/29"], &[]);
    let two = source.assign(NonZeroUsize::new(2).unwrap()).await.unwrap();
    source.unassign(two).await.unwrap();
    assert_eq!(all(&source).await, ["10.1.0.4", "10.1.0.5", "10.1.0.6", "10.1.0.2", "10.1.0.3"]);
}

#[tokio::test]
async fn an_address_by_name_is_given_once_and_only_if_it_is_ours() {
    let source = source(&["10.1.0.0/29", "fd00::/64"], &[]);
    let got = source.assign_exactly(wanted("10.1.0.5")).await.unwrap();
    assert_eq!(got.addresses.to_string(), "10.1.0.5,fd00::2");
    let again = source.assign_exactly(wanted("10.1.0.5")).await;
    assert_eq!(again, Err(SourceError::Taken("10.1.0.5".parse().unwrap())));
    for foreign in ["10.1.0.0", "10.1.0.1", "10.1.0.7", "10.2.0.2", "fd00::1"] {
        let answer = source.assign_exactly(wanted(foreign)).await;
        assert!(matches!(answer, Err(SourceError::NotOurs { .. })), "{foreign}: {answer:?}");
    }
    // What a refused call had taken already is free again.
    assert_eq!(
        source.assign_exactly(wanted("fd00::3")).await.unwrap().addresses.v4.unwrap().to_string(),
        "10.1.0.2"
    );
}

#[tokio::test]
async fn a_family_that_the_node_does_not_have_is_said() {
    let source = source(&["10.1.0.0/29"], &[]);
    assert_eq!(
        source.assign_exactly(wanted("fd00::5")).await,
        Err(SourceError::NoFamily(Family::V6))
    );
}

#[tokio::test]
async fn what_is_held_at_the_start_is_not_given_again_and_strangers_are_named() {
    let source = source(&["10.1.0.0/29"], &[]);
    let held = [Resource::veth(wanted("10.1.0.2")), Resource::veth(wanted("10.9.9.9"))];
    assert_eq!(source.adopt(&held), [held[1].id.clone()]);
    assert!(!all(&source).await.contains(&"10.1.0.2".to_owned()));
}

#[tokio::test]
async fn what_lacks_a_family_of_the_node_is_a_stranger_too() {
    let source = source(&["10.1.0.0/29", "fd00::/64"], &[]);
    let held = [Resource::veth(wanted("10.1.0.2"))];
    assert_eq!(source.adopt(&held), [held[0].id.clone()]);
    // What it has of this node is not given twice, and comes back with it.
    assert!(source.assign_exactly(wanted("10.1.0.2")).await.is_err());
    source.unassign(held.to_vec()).await.unwrap();
    source.assign_exactly(wanted("10.1.0.2")).await.unwrap();
}

#[test]
fn overlapping_and_empty_cidrs_are_refused_by_name() {
    let overlap = LocalAddresses::new(&nets(&["10.0.0.0/8", "10.1.0.0/16"]), &[]).unwrap_err();
    assert_eq!(overlap.to_string(), "pod CIDRs 10.0.0.0/8 and 10.1.0.0/16 overlap");
    let empty = LocalAddresses::new(&nets(&["10.1.0.0/30"]), &nets(&["10.1.0.2/32"])).unwrap_err();
    assert_eq!(empty.to_string(), "pod CIDR 10.1.0.0/30 has no address to give out");
}

proptest! {
    /// Given and returned in any order: never one twice, never one outside, and all come in the end.
    #[test]
    fn no_address_is_out_twice(ops in prop::collection::vec((any::<bool>(), 0..20usize), 0..200)) {
        let mut space = Space::new(&nets(&["10.1.0.0/28", "10.3.0.0/30"]), &nets(&["10.1.0.4/31"])).unwrap();
        let mut out: Vec<IpAddr> = Vec::new();
        for (give, at) in ops {
            if give {
                match space.next() {
                    Some(address) => {
                        prop_assert!(!out.contains(&address));
                        let hole: IpNet = "10.1.0.4/31".parse().unwrap();
                        prop_assert!(!hole.contains(&address));
                        out.push(address);
                    }
                    None => prop_assert_eq!(out.len(), space.size()),
                }
            } else if at < out.len() {
                space.put_back(out.swap_remove(at));
            }
        }
        while let Some(address) = space.next() {
            out.push(address);
        }
        prop_assert_eq!(out.len(), 11 + 1);
    }
}
