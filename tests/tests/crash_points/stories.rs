//! How each point is reached. In the end the daemon is down, or up and well.

use std::{fs, thread, time::Duration};

use berth_tests::{Answer, Call, Pod, eventually};

use crate::{
    cases::{Case, Story},
    scene::{End, Scene, Told, add, points, v4},
};

pub(crate) fn play(scene: &mut Scene<'_>, case: Case) -> End {
    let pod = Pod::new();
    let mut predecessor = None;
    let (pod, told) = match case.story {
        Story::Add => {
            let told = call(scene, case, &add(&pod));
            (pod, told)
        }
        Story::AddInNewNamespace => {
            v4(&add(&pod).run());
            pod.destroy();
            let pod = Pod::of(&pod.id);
            let told = call(scene, case, &add(&pod));
            (pod, told)
        }
        Story::TakeOver => {
            v4(&add(&pod).run());
            pod.destroy();
            let successor = Pod::new();
            predecessor = Some(pod);
            let told = call(scene, case, &add(&successor));
            (successor, told)
        }
        Story::LateCommit => {
            let answer = overtaken(scene, &points(case), &pod);
            assert_eq!(answer.signal, Some(9), "{answer:?}");
            (pod, Told::Gone)
        }
        Story::Delete => {
            v4(&add(&pod).run());
            let told = call(scene, case, &Call::of("DEL", &pod));
            (pod, told)
        }
        Story::DeleteOfUnknown => {
            let answer = overtaken(scene, "cni::after_attach=return", &pod);
            assert_eq!(answer.signal, Some(9), "{answer:?}");
            let told = call(scene, case, &Call::of("DEL", &pod));
            (pod, told)
        }
        Story::DeleteWhileAway => {
            v4(&add(&pod).run());
            scene.node.kill();
            let told = call(scene, case, &Call::of("DEL", &pod));
            (pod, told)
        }
        Story::Spool => {
            v4(&add(&pod).run());
            scene.node.kill();
            scene.node.del(&pod).nothing();
            scene.start_and_die(case);
            (pod, Told::Gone)
        }
        Story::Collect => {
            v4(&add(&pod).run());
            pod.destroy();
            scene.arm(case);
            scene.died();
            (pod, Told::Dead)
        }
        Story::Orphan => {
            let clocks = scene.arm_with_clock(case);
            let answer = overtaken(scene, "cni::after_attach=return", &pod);
            assert_eq!(answer.signal, Some(9), "{answer:?}");
            // The first look at the link, and one when no ADD can be behind it any more.
            thread::sleep(Duration::from_millis(2500));
            clocks.shift_boot(600);
            scene.died();
            (pod, Told::Gone)
        }
        Story::Start => {
            let address = v4(&add(&pod).run());
            scene.start_and_die(case);
            (pod, Told::Held(address))
        }
        Story::Unfinished => {
            v4(&add(&pod).run());
            assert!(scene.node.stop().success());
            scene.set_points("core::release::written=return");
            scene.node.start();
            scene.node.del(&pod).nothing();
            scene.died();
            scene.start_and_die(case);
            (pod, Told::Gone)
        }
        Story::Reboot => {
            v4(&add(&pod).run());
            scene.node.del(&pod).nothing();
            assert!(scene.node.stop().success());
            let boot = scene.node.directory().join("boot_id");
            fs::write(&boot, "00000000-1111-2222-3333-444444444444\n").unwrap();
            let place = "/proc/sys/kernel/random/boot_id";
            berth_testkit::run(&format!("mount --bind {} {place}", boot.display()));
            scene.start_and_die(case);
            berth_testkit::run(&format!("umount {place}"));
            (pod, Told::Gone)
        }
        Story::Rebuild => {
            let address = v4(&add(&pod).run());
            assert!(scene.node.stop().success());
            let log = fs::OpenOptions::new().write(true).open("/var/lib/berth/db/db").unwrap();
            log.set_len(100).unwrap();
            // It has all that ever was.
            fs::remove_file("/var/lib/berth/commits").unwrap();
            scene.start_and_die(case);
            (pod, Told::Held(address))
        }
        Story::Replay => {
            let address = v4(&add(&pod).run());
            scene.node.kill();
            scene.start_and_die(case);
            (pod, Told::Held(address))
        }
    };
    End { pod, told, predecessor }
}

/// Makes the call during which daemon or plugin are killed, and answers what its caller was told.
fn call(scene: &mut Scene<'_>, case: Case, call: &Call) -> Told {
    let of_plugin = case.point.starts_with("cni::");
    let answer = if of_plugin {
        let answer = call.clone().environment("FAILPOINTS", &points(case)).run();
        assert_eq!(answer.signal, Some(9), "{answer:?}");
        answer
    } else {
        scene.arm(case);
        let running = call.start();
        scene.died();
        running.finish()
    };
    match (answer.succeeded(), answer.stdout.is_empty()) {
        (true, true) => Told::Gone,
        (true, false) => Told::Held(v4(&answer)),
        (false, _) => Told::Nothing,
    }
}

/// An ADD that has its answer when a DEL overtakes it, with further points on its way.
fn overtaken(scene: &Scene<'_>, points: &str, pod: &Pod) -> Answer {
    let points = format!("cni::after_alloc=sleep(1500);{points}");
    let running = add(pod).environment("FAILPOINTS", &points).start();
    eventually(Duration::from_secs(10), || match scene.node.records(&pod.id).as_slice() {
        [] => Err("no record yet"),
        _ => Ok(()),
    });
    thread::sleep(Duration::from_millis(50));
    scene.node.del(pod).nothing();
    running.finish()
}
