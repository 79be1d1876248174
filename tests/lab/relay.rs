//! The way between two far hosts: each frame arrives later, and some never do. TCP stays theirs from end to end.
//!
//! One thread serves both directions. It sleeps while nothing is due soon and turns round for the last moments before
//! something is, since a thread that sleeps to the end wakes too late: a delay of 500 us must not become 600. It has a
//! processor of its own where there are two: the hosts run on the others, whichever else they would be moved to.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::tap::{HEAD, segments};

/// What happens to frames on their way.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// From one end to the other, in microseconds.
    pub one_way_us: u64,
    /// The rate in bits per second at which frames follow one another, Ethernet's 14 bytes of each packet counted; a
    /// frame arrives when its last bit does. Unlike a link's rate it holds for the first byte as for the last, as on a real
    /// line. None: together.
    pub line_rate: Option<u64>,
    /// Frames of a million that vanish, each direction for itself.
    pub loss_ppm: u32,
    /// TCP hands frames of up to so many bytes over, as to a network card that cuts them up; the way carries each as
    /// one, so a loss then takes all of it, and all of it arrives together. 64 KiB is fast, 0 is a packet at a time.
    pub super_frame_max: u32,
    /// Longer Ethernet frames (14 bytes and the packet) vanish, as behind a switch with a smaller MTU; needs
    /// a `super_frame_max` of 0. None: all lengths pass.
    pub frame_max: Option<u16>,
}

impl Way {
    /// A lossless way.
    pub const fn delay(one_way_us: u64) -> Self {
        Self {
            one_way_us,
            line_rate: None,
            loss_ppm: 0,
            super_frame_max: 64 << 10,
            frame_max: None,
        }
    }
}

/// Frames that are on their way in one direction at most; more are lost, as in a full router.
const FRAMES_MAX: usize = 20_000;
/// Frames taken in at once before others are looked after.
const TURN: usize = 32;
/// The longest frame with its head.
const LONGEST: usize = HEAD + 14 + (64 << 10);
/// A sleep ends that much too late at times.
const LATE: Duration = Duration::from_micros(60);
/// How long the relay stays awake after a frame: longer than any way here.
const AWAKE: Duration = Duration::from_millis(50);
/// How often an idle thread looks whether it is to end.
const LOOK_UP: Duration = Duration::from_millis(20);

/// The running thread, ended on drop.
pub struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Where the thread that made it may run otherwise.
    processors: CpuSet,
}

impl Relay {
    /// Carries frames between two devices. As long as it lives the calling thread, and what that starts, leave it a
    /// processor.
    pub fn start(ends: [File; 2], way: &Way) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, way) = (Arc::clone(&stop), *way);
        let processors = sched_getaffinity(None).expect("a thread may ask where it runs");
        let (own, others) = apart(&processors);
        let thread = std::thread::Builder::new()
            .name("relay".into())
            .spawn(move || {
                sched_setaffinity(None, &own).expect("it may choose among them");
                carry(&ends, &way, &told);
            })
            .expect("a thread");
        sched_setaffinity(None, &others).expect("it may choose among them");
        Self {
            stop,
            thread: Some(thread),
            processors,
        }
    }
}

/// The last of these processors, and the others; all of them for both where there is one only.
fn apart(processors: &CpuSet) -> (CpuSet, CpuSet) {
    let last = (0..CpuSet::MAX_CPU).rev().find(|at| processors.is_set(*at));
    let Some(last) = last.filter(|_| processors.count() > 1) else {
        return (*processors, *processors);
    };
    let (mut own, mut others) = (CpuSet::new(), *processors);
    own.set(last);
    others.unset(last);
    (own, others)
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic is on standard error, and the test has failed without a network.
            let _ = thread.join();
        }
        // A lab ends where it was made.
        let _ = sched_setaffinity(None, &self.processors);
    }
}

fn carry(ends: &[File; 2], way: &Way, stop: &AtomicBool) {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let [a, b] = ends;
    let mut directions = [Direction::new(a, b, way, 1), Direction::new(b, a, way, 2)];
    let mut buffer = vec![0; LONGEST];
    let mut active = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let mut busy = false;
        for direction in &mut directions {
            busy |= direction.take_in(&mut buffer);
            busy |= direction.hand_on();
        }
        if busy {
            active = Instant::now();
            continue;
        }
        // A processor that fell asleep between two frames would make a single request's way longer than that of many.
        if active.elapsed() < AWAKE {
            std::hint::spin_loop();
            continue;
        }
        let due = directions.iter().filter_map(Direction::next).min();
        let rest = due.map_or(LOOK_UP, |due| {
            due.saturating_duration_since(Instant::now()).min(LOOK_UP)
        });
        match rest.checked_sub(LATE) {
            Some(rest) => sleep(ends, rest),
            None => std::hint::spin_loop(),
        }
    }
}

/// Sleeps until a frame comes in or the time is over.
fn sleep(ends: &[File; 2], longest: Duration) {
    let mut fds = ends.each_ref().map(|end| PollFd::new(end, PollFlags::IN));
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(longest.subsec_nanos()),
    };
    // An interrupted sleep is a short one.
    let _ = poll(&mut fds, Some(&time));
}

struct Direction<'a> {
    from: &'a File,
    to: &'a File,
    way: Way,
    delay: Duration,
    /// When the line has carried all that was sent so far.
    free: Instant,
    flying: VecDeque<(Instant, Box<[u8]>)>,
    random: u64,
}

impl<'a> Direction<'a> {
    fn new(from: &'a File, to: &'a File, way: &Way, seed: u64) -> Self {
        Self {
            from,
            to,
            way: *way,
            delay: Duration::from_micros(way.one_way_us),
            free: Instant::now(),
            flying: VecDeque::with_capacity(FRAMES_MAX),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// When the next frame arrives.
    fn next(&self) -> Option<Instant> {
        self.flying.front().map(|(due, _)| *due)
    }

    /// Takes in what the sender has sent; false when that is nothing.
    fn take_in(&mut self, buffer: &mut [u8]) -> bool {
        for turn in 0..TURN {
            let length = match self.from.read(buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return turn > 0,
                // The device goes before the relay when a namespace ends, and is not up at first.
                Err(_) => return false,
            };
            let now = Instant::now();
            if self.passes(length) && self.flying.len() < FRAMES_MAX {
                let frame: Box<[u8]> = buffer[..length].into();
                self.free = self.free.max(now) + self.on_the_line(&frame);
                self.flying.push_back((self.free + self.delay, frame));
            }
        }
        true
    }

    /// How long the line needs for a frame.
    fn on_the_line(&self, frame: &[u8]) -> Duration {
        let Some(rate) = self.way.line_rate else {
            return Duration::ZERO;
        };
        let (packets, heads) = segments(frame).unwrap_or((1, 0));
        let bytes = frame.len() - HEAD + packets.saturating_sub(1) * heads;
        Duration::from_nanos(bytes as u64 * 8 * 1_000_000_000 / rate)
    }

    fn passes(&mut self, length: usize) -> bool {
        // xorshift64: the same losses in every run.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let lost = self.random % 1_000_000 < u64::from(self.way.loss_ppm);
        let longest = self.way.frame_max.map_or(LONGEST, usize::from);
        !lost && length.saturating_sub(HEAD) <= longest
    }

    /// Hands on what has arrived; false when that is nothing.
    fn hand_on(&mut self) -> bool {
        let now = Instant::now();
        let mut some = false;
        while self.next().is_some_and(|due| due <= now) {
            if let Some((_, frame)) = self.flying.pop_front() {
                // A host that takes no more loses it, as anywhere.
                let _ = self.to.write(&frame);
                some = true;
            }
        }
        some
    }
}
