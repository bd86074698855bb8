#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""
lwp stat and record, with real programs in QEMU's user mode emulation.

usage: test-record.py LWP QEMU-BUILD-DIR [TEST...]

What is counted and recorded is known from the source of the programs, or told
by a plugin of QEMU.
"""
import collections
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import unittest

import common
from common import Setup

# The loop of spin() has four instructions, the last of them a branch.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

extern char **environ;
static unsigned long n;

__attribute__((noinline)) void spin(unsigned long count)
{
    __asm__ volatile("1: nop\n nop\n dec %0\n jnz 1b" : "+r"(count));
}

static void *returns(void *arg)
{
    spin(n);
    return arg;
}

static int returns_c11(void *arg)
{
    spin(n);
    return arg != NULL;
}

static void threads_c11(void)
{
    thrd_t thread[8];
    int result;

    for (int i = 0; i < 8; i++) {
        if (thrd_create(&thread[i], returns_c11, &n) != thrd_success) {
            abort();
        }
    }
    for (int i = 0; i < 8; i++) {
        if (thrd_join(thread[i], &result) != thrd_success || result != 1) {
            abort();
        }
    }
}

static void *exits(void *arg)
{
    spin(n);
    pthread_exit(arg);
}

static void threads(void *(*run)(void *), int joined)
{
    pthread_t thread[8];

    for (int i = 0; i < 8; i++) {
        if (pthread_create(&thread[i], NULL, run, NULL) != 0) {
            abort();
        }
    }
    for (int i = 0; i < 8; i++) {
        (joined ? (int (*)(pthread_t, void **))pthread_join :
         (int (*)(pthread_t, void **))pthread_detach)(thread[i], NULL);
    }
    if (!joined) {
        pthread_exit(NULL);
    }
}

static void *named(void *name)
{
    pthread_setname_np(pthread_self(), name);
    spin(n);
    if (!strcmp(name, "long")) {
        sleep(2);
        kill(getpid(), SIGKILL);
    }
    return NULL;
}

static int wait_for(pid_t pid)
{
    int status;

    if (pid <= 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) {
        abort();
    }
    return WEXITSTATUS(status);
}

static __attribute__((noinline)) void insert(void)
{
    for (unsigned long i = 1; i <= n; i++) {
        unsigned data1 = i;
        uintptr_t data2 = i * (uintptr_t)0x9e3779b97f4a7c15;

        __asm__ volatile("lwpins $0xa5c3, %0, %1" : : "r"(data1), "r"(data2)
                         : "cc");
    }
}

static void interrupted(int sig)
{
    exit(sig + 30);
}

int main(int argc, char **argv)
{
    const char *what = argv[1];
    char line[64];
    pid_t pid = -1;

    if (argc > 3 && !strcmp(argv[3], "session")) {
        puts(getenv("LWP_SESSION"));
    }
    n = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    if (!strcmp(what, "loop")) {
        spin(n);
    } else if (!strcmp(what, "join")) {
        threads(returns, 1);
    } else if (!strcmp(what, "c11")) {
        threads_c11();
    } else if (!strcmp(what, "pthread_exit")) {
        threads(exits, 1);
    } else if (!strcmp(what, "detach")) {
        threads(returns, 0);
    } else if (!strcmp(what, "fork")) {
        pid = fork();
        spin(pid ? n : 2 * n);
        return pid ? wait_for(pid) : 7;
    } else if (!strcmp(what, "fork-exec")) {
        pid = fork();
        if (pid == 0) {
            spin(n);
            execvp(argv[3], argv + 3);
            _exit(127);
        }
        return wait_for(pid);
    } else if (!strcmp(what, "vfork")) {
        pid = vfork();
        if (pid == 0) {
            execvp(argv[3], argv + 3);
            _exit(127);
        }
        spin(n);
        return wait_for(pid);
    } else if (!strcmp(what, "spawn")) {
        if (posix_spawnp(&pid, argv[3], NULL, NULL, argv + 3, environ) != 0) {
            abort();
        }
        spin(n);
        return wait_for(pid);
    } else if (!strcmp(what, "exec") || !strcmp(what, "stop")) {
        if (*what == 's') {
            kill(getppid(), SIGSTOP);
        }
        spin(n);
        execvp(argv[3], argv + 3);
        return 127;
    } else if (!strcmp(what, "continue")) {
        spin(n);
        kill(getppid(), SIGCONT);
    } else if (!strcmp(what, "scribble")) {
        volatile unsigned *session;

        __asm__ volatile("slwpcb %0" : "=r"(session));
        session -= 2048 / sizeof(*session);
        for (unsigned size = session[2]; n--; spin(10)) {
            session[2] = n % 2 ? 0xffffffe0 : size;     /* of the ring */
            session[3] = n % 2 ? 0xffffff00 : 0x80;     /* of the events */
        }
        session[2] = 0xffffffe0;
        session[3] = 0xffffff00;
    } else if (!strcmp(what, "tail")) {
        volatile unsigned *cb;

        __asm__ volatile("slwpcb %0" : "=r"(cb));
        cb[16] = 0x12345;       /* BufferTailOffset */
    } else if (!strcmp(what, "dlopen")) {
        void *library = dlopen(argv[3], RTLD_NOW);
        void (*run)(unsigned long) = dlsym(library, "in_library");

        run(n);
        if (!strcmp(argv[4], "_exit")) {
            _exit(0);
        } else if (!strcmp(argv[4], "dlclose")) {
            dlclose(library);
        }
    } else if (!strcmp(what, "reload")) {
        for (int i = 3; i < 5; i++) {
            void *library = dlopen(argv[i], RTLD_NOW);
            void (*run)(unsigned long) = dlsym(library, "in_library");

            printf("%p\n", (void *)run);
            run(n += 1000);
            if (i == 3) {
                dlclose(library);
            }
        }
        fflush(stdout);
        kill(getpid(), SIGKILL);
    } else if (!strcmp(what, "kill")) {
        spin(n);
        kill(getpid(), SIGKILL);
    } else if (!strcmp(what, "forever") || !strcmp(what, "handler")) {
        if (*what == 'h') {
            signal(SIGINT, interrupted);
        }
        spin(1000000);
        puts("ready");
        fflush(stdout);
        for (;;) {
            spin(1000000);
        }
    } else if (!strcmp(what, "leave")) {
        int started[2];

        if (pipe(started)) {
            abort();
        }
        if (fork() == 0) {
            close(0);
            close(1);
            close(2);
            close(started[0]);
            close(started[1]);
            sleep(20);
        }
        close(started[1]);
        read(started[0], line, 1);
    } else if (!strcmp(what, "talk")) {
        while (fgets(line, sizeof(line), stdin)) {
            printf("<%s>", line);
        }
        fprintf(stderr, "%s\n", getenv("LWP_SESSION"));
        return 42;
    } else if (!strcmp(what, "names")) {
        pthread_t thread[2];

        for (int i = 0; i < 2; i++) {
            pthread_create(&thread[i], NULL, named, i ? "short" : "long");
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(thread[i], NULL);
        }
        kill(getpid(), SIGKILL);
    } else if (!strcmp(what, "insert")) {
        insert();
    } else {
        return 99;
    }
    return 0;
}
"""

LIBRARY = r"""
void in_library(unsigned long count)
{
    __asm__ volatile("1: nop\n nop\n dec %0\n jnz 1b" : "+r"(count));
}
"""

WROTE = (r'lwp record: wrote lwp\.data: \d+ records '
         r'\(threads: \d+, processes: \d+\)\n')
EACH_BRANCH = ['-e', 'bre', '-c', '1', '-m', '256']


class Case(common.Case):
    def program(self, bits=64):
        return common.compile_once(f'prog{bits}', SOURCE, '-O1', '-pthread',
                                   '-ldl', *(['-m32'] if bits == 32 else []))

    def guest(self, *args, bits=64, name=None, **kind):
        """A command that runs the program, maybe under another name."""
        program = self.program(bits)
        if name:
            program = self.path(name)
            if not os.path.exists(program):
                shutil.copy(self.program(bits), program)
        return [*Setup.qemu(bits, **kind), program, *map(str, args)]

    def record(self, *args, options=EACH_BRANCH, bits=64, **kind):
        """What the program says; what lwp does is in recorded then."""
        out = self.lwp('record', *options, '--',
                       *self.guest(*args, bits=bits), **kind)
        self.recorded = self.stderr
        return out

    def stat(self, *args, bits=64):
        self.lwp('stat', '-j', '-o', 'stat', '--',
                 *self.guest(*args, bits=bits))
        with open(self.path('stat')) as f:
            return common.json.load(f)

    def loops(self, *keys, function='spin'):
        """How often each loop's branch was recorded, by some keys."""
        whole, events = self.json('-s', ','.join([*keys, 'symbol', 'addr']))
        self.assertEqual(whole['missed'], 0)
        found = collections.Counter()
        for r in events['bre']['rows']:
            if r['symbol'] == function:
                key = tuple(r[k] for k in keys)
                found[key] = max(found[key], r['records'])
        return found

    def quiet(self):
        """Only the last line is lwp's, and there is no other."""
        self.assertRegex(self.recorded, rf'\A{WROTE}\Z')


class Counts(Case):
    def check(self, bits):
        less, more = 1000000, 3000000
        counts = [self.stat('loop', n, bits=bits) for n in (less, more)]
        difference = {e: counts[1]['events'][e]['count'] -
                      counts[0]['events'][e]['count'] for e in
                      ('ire', 'bre', 'cnh', 'rnh')}
        plugin = []
        for n in less, more:
            command = self.guest(
                'loop', n, bits=bits,
                options=['-plugin', Setup.plugin('insn') + ',inline=on',
                         '-d', 'plugin', '-D', self.path('log')])
            subprocess.run(command, check=True)
            with open(self.path('log')) as f:
                plugin.append(int(re.search(r'total insns: (\d+)',
                                            f.read())[1]))
        loops = more - less
        self.assertEqual(plugin[1] - plugin[0], 4 * loops)
        self.assertEqual(difference, {
            'ire': 4 * loops, 'bre': loops, 'cnh': 4 * loops,
            'rnh': 4 * loops})
        self.assertEqual([c['missed'] + c['unfinished'] for c in counts],
                         [0, 0])
        self.sentence = (f'{4 * loops} instructions and {loops} branches more, '
                         'as the source and the plugin insn say')

    def test_64_bits(self):
        self.check(64)

    def test_32_bits(self):
        self.check(32)

    def test_table(self):
        """Only the events that are wanted are in the table."""
        self.lwp('stat', '-e', 'ire,bre', '--', *self.guest('loop', 1000000))
        self.assertRegex(self.stderr, r'threads: 1, processes: 1')
        self.assertRegex(self.stderr, r'\b4,00\d,\d+ +ire +instructions')
        self.assertRegex(self.stderr, r'\b1,00\d,\d+ +bre +branches')
        self.assertRegex(self.stderr, r'seconds elapsed')
        self.assertNotIn('cycles', self.stderr)

    def test_threads_and_children(self):
        """Nine threads, then two processes: all of them are counted."""
        n = 1000000
        for what, threads, processes, loops in (('join', 9, 1, 8),
                                                ('fork', 2, 2, 3)):
            self.lwp('stat', '-j', '-o', 'stat', '--', *self.guest(what, n),
                     status=7 if what == 'fork' else 0)
            with open(self.path('stat')) as f:
                counts = common.json.load(f)
            self.assertEqual((counts['threads'], counts['processes'],
                              counts['unfinished']), (threads, processes, 0))
            branches = counts['events']['bre']['count'] - loops * n
            self.assertTrue(0 < branches < 20000, branches)

    def test_killed(self):
        counts = None
        self.lwp('stat', '-j', '-o', 'stat', '--',
                 *self.guest('kill', 3000000), status=128 + signal.SIGKILL)
        with open(self.path('stat')) as f:
            counts = common.json.load(f)
        self.assertEqual(counts['unfinished'], 1)
        self.assertIn('threads that were killed or still run: 1', self.stderr)
        lost = 12000000 - counts['events']['ire']['count']
        self.assertTrue(-20000 < lost <= 1 << 20, lost)
        self.sentence = f'{lost} instructions are not counted, as it says'


    def test_repeat(self):
        """The mean of several runs, and the deviation."""
        self.lwp('stat', '-r', '3', '-e', 'ire', '--',
                 *self.guest('loop', 1000000))
        self.assertIn(', the means of 3 runs)', self.stderr)
        self.assertRegex(self.stderr, r' 4,00\d,\d+  ire  instructions +\+- +'
                         r'0\.\d\d%')
        self.lwp('stat', '-r', '2', '-x', ';', '-e', 'ire,bre', '-o', 'stat',
                 '--', *self.guest('loop', 1000000))
        with open(self.path('stat')) as f:
            self.assertRegex(f.read(), r'\A400\d{4};ire;0\.\d\d%\n'
                             r'100\d{4};bre;0\.\d\d%\n\Z')
        self.lwp('stat', '-r', '9', '--', './missing', status=127)
        self.assertEqual(self.stderr.count('cannot run'), 1)

    def test_fields(self):
        self.lwp('stat', '-x', ',', '-e', 'instructions', '--',
                 *self.guest('loop', 1000000))
        self.assertRegex(self.stderr, r'\A400\d{4},ire\n\Z')

    def test_interval(self):
        """Counts of each interval add up to the count."""
        self.lwp('stat', '-I', '20', '-x', ' ', '-e', 'ire', '-o', 'stat',
                 '--', *self.guest('loop', 50000000))
        with open(self.path('stat')) as f:
            lines = [line.split() for line in f]
        self.assertGreater(len(lines), 3)
        times = [float(time) for time, _, _ in lines]
        self.assertEqual(times, sorted(times))
        self.assertEqual({name for _, _, name in lines}, {'ire'})
        total = sum(int(count) for _, count, _ in lines)
        self.assertTrue(200000000 <= total < 200010000, total)
        # Who is stopped for a while has missed intervals.
        self.lwp('stat', '-I', '200', '-x', ' ', '-o', 'stat', '--', 'sh', '-c',
                 '"$@" > /dev/null & p=$!; sleep 1; '
                 '(sleep 2; kill -CONT $PPID) & '
                 'kill -STOP $PPID; wait $!; sleep 1; kill $p', 'sh',
                 *self.guest('forever'))
        with open(self.path('stat')) as f:
            times = sorted({float(line.split()[0]) for line in f})
        self.assertGreater(len(times), 2)
        steps = [b - a for a, b in zip(times, times[1:-1])]
        self.assertGreater(max(steps), 1)
        self.assertLess(sum(step < 0.1 for step in steps), 3, steps)
        self.lwp('stat', '-I', '20', '-e', 'ire', '--',
                 *self.guest('loop', 5000000))
        self.assertRegex(self.stderr, r'(?m)^ +\d+\.\d{6} +[\d,]+  ire  '
                         'instr')
        self.assertRegex(self.stderr, r' 20,00\d,\d+  ire  instructions')
        self.sentence = f'{len(lines)} intervals'


class Threads(Case):
    def check(self, how, bits=64):
        n = 5000
        self.record(how, n, bits=bits)
        self.quiet()
        loops = self.loops('tid')
        self.assertEqual(sorted(loops.values()), [n] * 8)
        self.assertIn('threads: 9, processes: 1', self.recorded)
        self.sentence = f'8 threads, {n} records of its loop from each'

    def test_joined(self):
        self.check('join')

    def test_joined_32_bits(self):
        self.check('join', 32)

    def test_c11(self):
        self.check('c11')

    def test_pthread_exit(self):
        self.check('pthread_exit')

    def test_detached(self):
        self.check('detach')


class Children(Case):
    def test_fork(self):
        """A child without exec has its own records, and the exit status."""
        self.record('fork', 3000, status=7)
        self.quiet()
        self.assertEqual(sorted(self.loops('pid').values()), [3000, 6000])

    def test_native_child(self):
        """A program that runs outside of the emulation notices nothing."""
        out = self.record('fork-exec', 3000, 'sh', '-c', 'echo "a  b"; exit 5',
                          status=5)
        self.quiet()
        self.assertEqual(out, 'a  b\n')
        self.assertEqual(list(self.loops('pid').values()), [3000])

    def check_start(self, how, bits=64):
        out = self.record(how, 3000, *self.guest(
            'exec', 4000, 'echo', 'x', bits=bits, name='child'), status=0)
        self.quiet()
        self.assertEqual(out, 'x\n')
        self.assertEqual(sorted(self.loops('pid', 'comm').items(),
                                key=lambda item: item[1]),
                         [((self.pid('prog64'), 'prog64'), 3000),
                          ((self.pid('child'), 'child'), 4000)])

    def pid(self, comm):
        return [p['pid'] for p in self.json()[0]['programs']
                if p['comm'] == comm][0]

    def test_fork_exec(self):
        """Another program in a child has its own name and records."""
        out = self.record('fork-exec', 3000,
                          *self.guest('loop', 4000, name='child'))
        self.quiet()
        self.assertEqual(out, '')
        pid = self.pid('child')
        self.assertEqual(self.loops('pid', 'comm'),
                         {(pid, 'prog64'): 3000, (pid, 'child'): 4000})

    def test_vfork(self):
        """The child runs a program, and that one a native program."""
        self.check_start('vfork')

    def test_posix_spawn(self):
        """The same as with vfork."""
        self.check_start('spawn')

    def test_exec_chain(self):
        """64 bits, then 32, then 64: one process, three programs."""
        self.program(32)
        self.record('exec', 1000, *self.guest(
            'exec', 2000, *self.guest('loop', 3000, name='third'),
            bits=32, name='second'))
        self.quiet()
        self.assertEqual(self.loops('comm'), {
            ('prog64',): 1000, ('second',): 2000, ('third',): 3000})
        programs = self.json()[0]['programs']
        self.assertEqual([p['bits'] for p in programs], [64, 32, 64])
        self.assertEqual(len({p['pid'] for p in programs}), 1)

    def test_exec_at_once(self):
        """Programs that are gone before the recorder looks count, too."""
        self.record('stop', 1000, *self.guest(
            'exec', 2000, *self.guest('continue', 3000, name='last'),
            name='middle'))
        self.quiet()
        self.assertEqual(self.loops('comm'), {
            ('prog64',): 1000, ('middle',): 2000, ('last',): 3000})

    def test_left_behind(self):
        """A child that goes on is not waited for, and is told of."""
        self.record('leave')
        self.assertRegex(self.recorded, r'\Alwp record: prog64 \(\d+\) still '
                         rf'runs; what it does now is not profiled\n{WROTE}\Z')


class Libraries(Case):
    def test_dlopen(self):
        """Functions of a library that was loaded later have names."""
        library = common.compile_c(self.path('late.so'), LIBRARY, '-shared',
                                   '-fPIC', '-O1')
        for how in 'exit', '_exit', 'dlclose':
            self.record('dlopen', 4000, library, how)
            self.quiet()
            self.assertEqual(self.loops('dso', function='in_library'),
                             {(library,): 4000}, how)


    def check_reloaded(self, bits):
        """One takes the place of another, and then the program is killed."""
        paths = [common.compile_c(self.path(f'{name}{bits}.so'), LIBRARY,
                                  '-shared', '-fPIC', '-O1',
                                  *(['-m32'] if bits == 32 else []))
                 for name in ('one', 'two')]
        out = self.record('reload', 3000, *paths, bits=bits,
                          status=128 + signal.SIGKILL)
        self.assertEqual(len(set(out.split())), 1, 'not at the same address')
        self.assertEqual(self.loops('dso', function='in_library'),
                         {(paths[0],): 4000, (paths[1],): 5000})
        self.assertNotIn('dynamic linker', self.recorded)

    def test_reloaded(self):
        self.check_reloaded(64)

    def test_reloaded_32_bits(self):
        self.check_reloaded(32)

    def test_build_id(self):
        """The profile says which files they were, and that is compared."""
        program = self.path('changes')
        source = SOURCE.replace('noinline)) void spin', 'noinline)) void spun')
        for attempt, text in enumerate((SOURCE, source.replace(
                'spin(', 'spun('))):
            common.compile_c(program, text, '-O1', '-pthread', '-ldl', '-w',
                             '-Wl,--build-id')
            if not attempt:
                self.lwp('record', *EACH_BRANCH, '--', *Setup.qemu(), program,
                         'loop', '1000')
                self.assertEqual(self.loops(), {(): 1000})
        self.assertEqual(self.loops(function='spun'), {})
        self.lwp('report')
        self.assertIn(f'{program}: it is another file than', self.stderr)
        self.assertRegex(self.lwp('script', '-a'), rf'(?m)^# file: {program}, '
                         r'\d+ bytes, build ID [0-9a-f]{40}$')


class Names(Case):
    def test_threads(self):
        """Threads have names, also if they are killed; and there is a time."""
        self.record('names', 10000, status=128 + signal.SIGKILL,
                    options=['-e', 'bre', '-c', '11'])
        whole, events = self.json()
        names = {(r['thread'], r['comm']) for r in events['bre']['threads']}
        self.assertEqual(names, {('long', 'prog64'), ('short', 'prog64'),
                                 ('prog64', 'prog64')})
        self.assertEqual(whole['lwp'], self.lwp('--version').split()[1])
        self.assertEqual(whole['ring'], 128 * 4096 // 32)
        self.assertTrue(0 < whole['seconds'] < 10, whole['seconds'])


class Memory(Case):
    def test_vdso(self):
        """The kernel's own library has names, in 64 and 32 bits."""
        for bits in 64, 32:
            program = common.compile_c(self.path(f'time{bits}'), r"""
                #include <dlfcn.h>
                #include <stdlib.h>
                #include <time.h>
                int main(int argc, char **argv)
                {
                    void *vdso = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
                    int (*gettime)(int, struct timespec *) = vdso ?
                        dlsym(vdso, "__vdso_clock_gettime") : NULL;
                    struct timespec t;
                    for (int i = 0; i < 3000; i++) {
                        if (!gettime || gettime(CLOCK_MONOTONIC, &t)) {
                            abort();
                        }
                    }
                    return argc != 2;
                }""", '-w', '-ldl', *(['-m32'] if bits == 32 else []))
            self.lwp('record', '-e', 'ire', '-c', '17', '-r', '3', '--',
                     *Setup.qemu(bits), program,
                     'linux-vdso.so.1' if bits == 64 else 'linux-gate.so.1')
            names = {n for (o, n) in self.functions(self.json()[1]['ire'])
                     if o.startswith('[vdso')}
            self.assertTrue(names & {'clock_gettime', '__vdso_clock_gettime',
                                     '__vdso_clock_gettime64'}, names)


class Signals(Case):
    def test_sigkill(self):
        self.record('kill', 5000, status=128 + signal.SIGKILL)
        self.assertRegex(self.recorded, rf'\Alwp record: .*: Killed\n{WROTE}\Z')
        self.assertEqual(self.loops('tid'), {(self.tid(),): 5000})
        self.sentence = 'all 5000 records up to then are there'

    def tid(self):
        return self.json()[0]['threads'][0]['tid']

    def test_sigkill_misses(self):
        self.record('kill', 200000, status=128 + signal.SIGKILL,
                    options=['-e', 'bre', '-c', '1', '-m', '1'])
        missed = int(re.search(r'(\d+) records were missed', self.recorded)[1])
        self.assertEqual(self.json()[0]['missed'], missed)
        self.assertGreater(missed, 0)
        self.sentence = f'{missed} missed records are reported'

    def interrupt(self, what, kill, status):
        with subprocess.Popen(
                [Setup.lwp, 'record', '-c', '1009', '--', *self.guest(what)],
                cwd=self.folder, start_new_session=True, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
            try:
                self.assertEqual(p.stdout.readline(), 'ready\n')
                kill(p.pid)
                _, self.recorded = p.communicate(timeout=60)
            finally:
                if p.poll() is None:
                    os.killpg(p.pid, signal.SIGKILL)
        self.assertEqual(p.returncode, status, self.recorded)
        self.assertRegex(self.recorded, rf'{WROTE}\Z')
        self.assertIn(('prog64', 'spin'),
                      self.functions(self.json()[1]['ire']))

    def test_ctrl_c(self):
        """The program dies, and what was recorded is there."""
        self.interrupt('forever', lambda pid: os.killpg(pid, signal.SIGINT),
                       128 + signal.SIGINT)
        self.assertIn(': Interrupt\n', self.recorded)

    def test_ctrl_c_handled(self):
        """What a program that has a handler returns is returned."""
        self.interrupt('handler', lambda pid: os.killpg(pid, signal.SIGINT),
                       30 + signal.SIGINT)

    def test_sigterm(self):
        """A signal to lwp alone is passed on."""
        self.interrupt('forever', lambda pid: os.kill(pid, signal.SIGTERM),
                       128 + signal.SIGTERM)


class Hostile(Case):
    def test_session(self):
        """A program that overwrites its session only harms itself."""
        for what in 'scribble', 'tail':
            self.record(what, 300000)
            self.assertRegex(self.recorded, r'(?m)^lwp record: thread \d+ of '
                             r'prog64 has overwritten its session$', what)

    def test_pipe(self):
        """What is not a file is not waited for."""
        self.lwp('record', '--', 'sh', '-c', 'mkfifo $LWP_SESSION/m.1.1 '
                 '$LWP_SESSION/s.1.1.1; ln -s /dev/zero $LWP_SESSION/m.2.1',
                 status=1)
        self.assertIn('cannot use the session', self.stderr)
        self.assertIn('m.2.1: Too many levels', self.stderr)


class Output(Case):
    def test_unchanged(self):
        """Input, output and exit status are the program's."""
        for options in ['record'], ['stat', '-o', 'stat']:
            out = self.lwp(*options, '--', *self.guest('talk'), status=42,
                           input='one\ntwo\n')
            self.assertEqual(out, '<one\n><two\n>')
            session, *rest = self.stderr.splitlines(True)
            self.assertTrue(session.startswith('/'))
            self.assertFalse(os.path.exists(session.strip()))
            self.assertRegex(''.join(rest), rf'\A({WROTE})?\Z')

    def test_missed(self):
        """Stored and missed records together are all events."""
        sums = {}
        for pages in '4096', '1':     # the one without misses first
            self.record('loop', 300000,
                        options=['-e', 'bre', '-c', '1', '-m', pages])
            whole, events = self.json()
            sums[pages] = whole['missed'] + events['bre']['records']
            if pages == '4096':
                self.quiet()
        missed = whole['missed']
        self.assertGreater(missed, 0)
        self.assertIn(f'lwp record: {missed} records were missed: a ring was '
                      'full; longer periods (-c) or a larger ring (-m) help\n',
                      self.recorded)
        self.assertIn(f'WARNING: {missed} records were missed',
                      self.lwp('report'))
        self.assertEqual(missed, sum(map(int, re.findall(
            r'(?m)^# missed: \d+/\d+, (\d+) records$', self.lwp('script')))))
        self.assertEqual(sums['1'], sums['4096'])
        self.sentence = (f'{missed} missed records and '
                         f'{sums["1"] - missed} stored ones are all branches')

    def check_inserted(self, bits):
        count = 6000
        self.record('insert', count, bits=bits, options=['-m', '256'])
        self.quiet()
        mask = (1 << bits) - 1
        found = re.findall(r' ins: \w+ insert\S+ \(prog\d\d\) flags 0x(\w+) '
                           r'data1 0x(\w+) data2 0x(\w+)$',
                           self.lwp('script', '-e', 'ins'), re.M)
        self.assertEqual(
            [tuple(int(x, 16) for x in f) for f in found],
            [(0xa5c3, i, i * (0x9e3779b97f4a7c15 & mask) & mask)
             for i in range(1, count + 1)])
        self.sentence = f'{count} values, each once and in order'

    def test_lwpins(self):
        self.check_inserted(64)

    def test_lwpins_32_bits(self):
        self.check_inserted(32)


class Errors(Case):
    def test_static(self):
        """A statically linked program runs, and is told of."""
        static = common.compile_c(self.path('static'), SOURCE, '-static',
                                  '-O1', '-pthread', '-w')
        self.lwp('record', '--', *Setup.qemu(), static, 'fork', '1', status=7)
        self.assertIn('nothing was profiled: ', self.stderr)
        self.assertIn('statically linked', self.stderr)
        self.assertNotIn('wrote', self.stderr)
        self.lwp('record', '-o', 'none', '--', *Setup.qemu(), static, 'loop',
                 '1', status=1)
        self.assertFalse(os.path.exists(self.path('none')))
        self.lwp('stat', '--', *Setup.qemu(), static, 'loop', '1', status=1)
        self.assertIn('nothing was profiled: ', self.stderr)
        self.assertNotIn('instructions', self.stderr)

    def test_no_lwp(self):
        """The program runs, and lwp says that the CPU has no LWP."""
        for command in 'record', 'stat':
            self.lwp(command, '--', *self.guest('fork', 1, cpu='max,-lwp'),
                     status=7)
            self.assertIn(f'lwp {command}: nothing was profiled: this CPU has '
                          'no LWP', self.stderr)
        r = self.lwp_inside('max,-lwp')
        self.assertEqual(r.returncode, 1)
        self.assertIn('this CPU has no LWP\n', r.stdout)

    def lwp_inside(self, cpu, *args):
        return subprocess.run([*Setup.qemu(64, cpu), Setup.lwp, 'info', *args],
                              stdout=subprocess.PIPE, text=True)

    def test_info(self):
        """All events are available, and LWP is disabled."""
        r = self.lwp_inside('max,+lwp')
        self.assertEqual(r.returncode, 0)
        self.assertRegex(r.stdout, r'LWP version +1\n')
        for name in 'VAL', 'IRE', 'BRE', 'DME', 'CNH', 'RNH':
            self.assertRegex(r.stdout, rf'\({name}\) +available\n')
        self.assertIn('this thread: LWP is disabled\n', r.stdout)
        info = json.loads(self.lwp_inside('max,+lwp', '--json').stdout)
        self.assertTrue(info['available'] and not info['enabled'])
        self.assertEqual(info['events'],
                         ['val', 'ire', 'bre', 'dme', 'cnh', 'rnh'])

    def test_missing_event(self):
        """An event that the CPU does not have."""
        self.lwp('record', '-e', 'dme', '--',
                 *self.guest('loop', 1, cpu='max,+lwp,lwp-dme=off'), status=1)
        self.assertEqual(self.stderr, 'lwp record: threads that were not '
                         'profiled: 1: an event is not available\n')
        self.lwp('record', '-e', 'ire,dme', '--',
                 *self.guest('loop', 1, cpu='max,+lwp,lwp-dme=off'))
        self.assertIn('the event dme (dcache-misses) is not available',
                      self.stderr)
        self.assertIn('0 records (threads: 1', self.stderr)

    def test_command(self):
        """Status 127 if it is missing, 126 if it is no program."""
        for command in 'record', 'stat':
            self.lwp(command, '--', './missing', 'x', status=127)
            self.assertEqual(self.stderr, f'lwp {command}: cannot run '
                             './missing: No such file or directory\n')
            self.lwp(command, '--', '/dev/null', status=126)
            self.assertEqual(self.stderr, f'lwp {command}: cannot run '
                             '/dev/null: Permission denied\n')

    def test_old_file(self):
        """A profile is replaced when there is a new one, and kept."""
        self.record('loop', 1000)
        with open(self.path('lwp.data'), 'rb') as f:
            first = f.read()
        for command, status in ((['./missing'], 127),
                                (self.guest('loop', 1, cpu='max,-lwp'), 1)):
            self.lwp('record', '--', *command, status=status)
            with open(self.path('lwp.data'), 'rb') as f:
                self.assertEqual(f.read(), first)
        self.record('loop', 2000)
        self.assertEqual(self.loops(), {(): 2000})
        with open(self.path('lwp.data.old'), 'rb') as f:
            self.assertEqual(f.read(), first)
        os.rename(self.path('lwp.data'), self.path('elsewhere'))
        os.symlink('elsewhere', self.path('lwp.data'))
        self.record('loop', 3000)
        self.assertTrue(os.path.islink(self.path('lwp.data')))
        self.assertEqual(self.loops(), {(): 3000})
        self.assertEqual([n for n in os.listdir(self.folder)
                          if n.startswith(('lwp.data.', 'elsewhere.')) and
                          not n.endswith('.old')], [])

    def test_filters(self):
        """What the CPU would ignore is an error; latencies are told."""
        g5 = 'Opteron_G5,+lwp'
        for options in (['-f', 'ip=0-0xffff'], ['-e', 'bre', '-f', 'npb']):
            for command in 'record', 'stat':
                self.lwp(command, *options, '--', *self.guest(
                    'loop', 1, cpu=g5), status=1)
                self.assertIn('this CPU does not have a filter', self.stderr)
        self.lwp('record', '-e', 'bre', '-f', 'ncb', '--', *self.guest(
            'loop', 1, cpu=g5))
        self.lwp('record', '-e', 'dme', '-f', 'latency=47', '--',
                 *self.guest('loop', 1))
        self.assertIn('"latency=47" becomes latency=32', self.stderr)

    def test_full_disk(self):
        """Status 1 and a message, but that of the program goes first."""
        for command in 'record', 'stat':
            self.lwp(command, '-o', '/dev/full', '--', *self.guest('loop', 1),
                     status=1)
            self.assertIn(f'cannot write', self.stderr)
            self.assertIn('No space left on device\n', self.stderr)
            self.lwp(command, '-o', '/nonexistent/x', '--', 'true', status=1)
            self.assertIn('cannot write /nonexistent/x: No such file or '
                          'directory\n', self.stderr)
            # The program's own status goes first.
            self.lwp(command, '-o', '/dev/null', '--', *self.guest('what'),
                     status=99)

    def test_file_too_large(self):
        """A disk that is full only later: nothing is left behind."""
        limit = 2 << 20     # of 8 rings of 640 kB that are stored
        out = self.record('join', 20000, 'session', status=1,
                          preexec_fn=lambda: resource.setrlimit(
                              resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertIn('lwp: cannot write lwp.data: File too large\n',
                      self.recorded)
        self.assertNotIn('wrote', self.recorded)
        self.assertFalse(os.path.exists(out.strip()))
        self.assertGreater(self.json()[1]['bre']['records'], 0)

    def test_closed_pipe(self):
        """An error like others; and the command has its SIGPIPE."""
        reader, writer = os.pipe()
        os.close(reader)
        self.lwp('record', '-o', f'/dev/fd/{writer}', '--', 'true', status=1,
                 pass_fds=[writer])
        self.assertEqual(self.stderr, 'lwp: cannot write /dev/fd/'
                         f'{writer}: Broken pipe\n')
        os.close(writer)
        out = self.lwp('stat', '--', 'grep', 'SigIgn', '/proc/self/status',
                       status=1)
        self.assertEqual(out, 'SigIgn:\t0000000000000000\n')

    def test_options(self):
        both = ((['-e', 'foo'], 'there is no event "foo"'),
                (['-e', ''], 'there is no event ""'),
                (['-f', 'foo'], 'there is no filter "foo"'),
                (['-f', 'nab,ip=5'], 'the filter "ip=5" has no addresses'),
                (['-f', 'ip=5-4'], 'the filter "ip=5-4" has no addresses'),
                (['-f', 'latency=99999'], '"latency=99999" is not for 16 to'),
                (['-f', 'latency=15'], '"latency=15" is not for 16 to 4080'),
                (['-e', 'ins'], '"ins" is recorded in any case'),
                (['-m', '0'], '"0" is not 1 to 65535 pages'),
                (['-m', '65536'], '"65536" is not 1 to 65535 pages'),
                (['-m', '3x'], '"3x" is not 1 to 65535 pages'),
                (['--bogus'], 'bogus'), (['-o'], 'requires an argument'),
                ([], 'usage: '))
        record = ((['-c', '0'], 'the period "0" is not 1 to 33554432'),
                  (['-c', '33554433'], 'the period "33554433" is not'),
                  (['-c', '-1'], 'the period "-1" is not'),
                  (['-i', '5'], "invalid option -- 'i'"),
                  (['--repeat', '5'], '-r is not an option of this command'),
                  (['-c', '1k'], 'the period "1k" is not'),
                  (['-e', 'ire=0'], 'the period "0" is not'),
                  (['-e', 'ire='], 'the period "" is not'),
                  (['-r', '16'], '"16" is not 0 to 15 bits'),
                  (['--json'], '-j is not an option of this command'))
        stat = ((['--count', '5'], '-c is not an option of this command'),
                (['-r', '0'], '"0" is not 1 to 1000000 runs'),
                (['-I', '1'], '"1" is not 10 to 1000000000 milliseconds'),
                (['-I', '10', '-r', '2'], '-I is not for -r and -j'),
                (['-j', '-x', ','], '-j is not for -r and -x'),
                (['-e', 'ire=5'], 'ire=5'))
        for command, table in (('record', both + record),
                               ('stat', both + stat)):
            for options, message in table:
                self.lwp(command, *options, *(['true'] if options and
                                              options != ['-o'] else []),
                         status=2)
                self.assertIn(message, self.stderr, options)
        self.lwp('what', status=2)
        self.assertIn('there is no command "what"', self.stderr)
        self.lwp(status=2)
        self.assertIn('usage: ', self.stderr)
        self.lwp('info', 'x', status=2)
        self.sentence = (f'{2 * len(both) + len(record) + len(stat) + 3} wrong '
                         'command lines')


# Before the C library: system calls of a program that confines itself kill it,
# and a signal that is not blocked keeps posix_fallocate() from its work.
POLICE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>

static int confined;

/* With other parameters than in headers, which have "..." */
int prctl_here(int, unsigned long, unsigned long, unsigned long,
               unsigned long) __asm__("prctl");
long syscall_here(long, long, long, long, long, long, long) __asm__("syscall");
int open_here(const char *, int, int) __asm__("open");
int open64_here(const char *, int, int) __asm__("open64");

#define CALL(type, here, name, parameters, arguments)               \
    type here parameters                                            \
    {                                                               \
        if (confined) {                                             \
            abort();                                                \
        }                                                           \
        return ((type (*) parameters)dlsym(RTLD_NEXT, #name)) arguments; \
    }
CALL(int, open_here, open, (const char *p, int f, int m), (p, f, m))
CALL(int, open64_here, open64, (const char *p, int f, int m), (p, f, m))
CALL(int, rename, rename, (const char *a, const char *b), (a, b))
CALL(int, symlink, symlink, (const char *a, const char *b), (a, b))
CALL(int, munmap, munmap, (void *p, size_t n), (p, n))
CALL(pid_t, gettid, gettid, (void), ())
CALL(int, pthread_sigmask, pthread_sigmask,
     (int h, const sigset_t *a, sigset_t *b), (h, a, b))

int prctl_here(int option, unsigned long a, unsigned long b, unsigned long c,
               unsigned long d)
{
    if (option == PR_SET_SECCOMP) {
        confined = a != 99;
        return a == 99 ? -1 : 0;
    }
    if (confined) {
        abort();
    }
    return ((int (*)(int, ...))dlsym(RTLD_NEXT, "prctl"))(option, a, b, c, d);
}

long syscall_here(long number, long a, long b, long c, long d, long e,
                  long f)
{
    if (number == SYS_seccomp) {
        confined = 1;
        return 0;
    }
    return ((long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"))(number, a, b, c,
                                                              d, e, f);
}

int posix_fallocate(int fd, off_t start, off_t size)
{
    sigset_t blocked;

    sigprocmask(SIG_SETMASK, NULL, &blocked);
    return !sigismember(&blocked, SIGALRM) ? EINTR :
           ((int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate"))
           (fd, start, size);
}
"""

CONFINED = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline)) void spin(unsigned long count)
{
    __asm__ volatile("1: nop\n nop\n dec %0\n jnz 1b" : "+r"(count));
}

static void *run(void *arg)
{
    spin(500);
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    pthread_create(&thread, NULL, run, NULL);
    pthread_join(thread, NULL);
    if (prctl(PR_SET_SECCOMP, 99, 0, 0, 0) != -1 ||
        syscall(SYS_getpid) != getpid()) {
        return 3;
    }
    if (!strcmp(argv[1], "prctl") ? prctl(PR_SET_SECCOMP, 1, 0, 0, 0)
                                  : syscall(SYS_seccomp, 1, 0, NULL)) {
        return 4;
    }
    spin(1000);
    pthread_create(&thread, NULL, run, NULL);
    pthread_join(thread, NULL);
    exit(5);
}
"""


class Robust(Case):
    def check_confined(self, bits):
        """Programs that confine themselves go on, and are told of."""
        flags = ['-m32'] if bits == 32 else []
        police = common.compile_c(self.path(f'police{bits}.so'), POLICE,
                                  '-shared', '-fPIC', '-w', '-ldl', *flags)
        program = common.compile_c(self.path(f'confined{bits}'), CONFINED,
                                   '-pthread', '-w', '-O1',
                                   police, *flags)
        for how in 'prctl', 'syscall':
            self.lwp('record', *EACH_BRANCH, '--', *Setup.qemu(bits), program,
                     how, status=5)
            self.assertRegex(self.stderr, r'\Alwp record: threads that were not '
                             r'profiled: 1: their program has confined itself '
                             rf'\(seccomp\) before\n{WROTE}\Z')
            self.assertEqual(sorted(self.loops('tid').values()), [500, 1000])
            self.assertEqual(self.json()[0]['unprofiled'], 1)
        self.lwp('stat', '--', *Setup.qemu(bits), program, 'prctl', status=5)

    def test_confined(self):
        self.check_confined(64)

    def test_confined_32_bits(self):
        self.check_confined(32)

    def test_closed(self):
        """A program may close all descriptors."""
        program = common.compile_c(self.path('closes'), r"""
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <pthread.h>
            #include <stdlib.h>
            #include <unistd.h>
            __attribute__((noinline)) void spin(unsigned long count)
            {
                __asm__ volatile("1: nop\n nop\n dec %0\n jnz 1b"
                                 : "+r"(count));
            }
            static void *run(void *arg)
            {
                spin(500);
                return arg;
            }
            int main(int argc, char **argv)
            {
                pthread_t thread;
                for (int i = 0; i < 64; i++) {
                    close(i);
                }
                pthread_create(&thread, NULL, run, NULL);
                pthread_join(thread, NULL);
                spin(1000);
                return 6;
            }""", '-pthread', '-w', '-O1')
        self.lwp('record', *EACH_BRANCH, '--', *Setup.qemu(), program,
                 status=6)
        self.assertEqual(sorted(self.loops('tid').values()), [500, 1000])

    def test_pause(self):
        """lwp_pause() and lwp_resume() choose what is recorded."""
        folder = os.path.dirname(Setup.lwp)
        tools = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             '../../guest/tools')
        program = common.compile_c(self.path('pauses'), r"""
            #include <string.h>
            #include <unistd.h>
            #include "lwp.h"
            __attribute__((noinline)) void spin(unsigned long count)
            {
                __asm__ volatile("1: nop\n nop\n dec %0\n jnz 1b"
                                 : "+r"(count));
            }
            int main(int argc, char **argv)
            {
                lwp_resume();
                spin(1000);
                lwp_pause();
                lwp_pause();
                spin(20000);
                lwp_resume();
                lwp_resume();
                spin(300);
                lwp_pause();
                spin(20000);
                if (argc > 1) {
                    execlp("true", "true", NULL);
                }
                return 0;
            }""", '-w', '-O1', '-I', tools, os.path.join(folder, 'liblwp.a'))
        for more in [], ['exec']:
            self.lwp('record', *EACH_BRANCH, '--', *Setup.qemu(), program,
                     *more)
            self.assertEqual(list(self.loops().values()), [1300])
            self.lwp('stat', '-e', 'bre', '-j', '-o', 'stat', '--',
                     *Setup.qemu(), program, *more)
            with open(self.path('stat')) as f:
                counts = common.json.load(f)
            self.assertLess(counts['events']['bre']['count'], 20000)
            self.assertEqual(counts['unfinished'], 0)
        subprocess.run([*Setup.qemu(), program], check=True)
        subprocess.run([*Setup.qemu(cpu='max,-lwp'), program], check=True)


# Instead of the driver, for lwp: whom it is to listen to has ended at once.  In
# the end, it says how often lwp was told.
DRIVER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lwp_ioctl.h"

static int fds[2] = { -1, -1 };
static unsigned status, hangups;

static int driver(void)
{
    return pipe(fds) ? -1 : fds[0];
}

int open(const char *path, int flags, int mode)
{
    return !strcmp(path, LWP_DEVICE) ? driver() :
           ((int (*)(const char *, int, int))dlsym(RTLD_NEXT, "open"))
           (path, flags, mode);
}

int open64(const char *path, int flags, int mode)
{
    return !strcmp(path, LWP_DEVICE) ? driver() :
           ((int (*)(const char *, int, int))dlsym(RTLD_NEXT, "open64"))
           (path, flags, mode);
}

int ioctl(int fd, unsigned long request, void *arg)
{
    struct lwp_ioc_status *s = arg;

    if (fd < 0 || fd != fds[0]) {
        return ((int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl"))
               (fd, request, arg);
    }
    if (request == LWP_IOC_STATUS) {
        memset(s, 0, sizeof(*s));
        s->exhausted = 5 + 2 * status;
        s->heals = 10 + 3 * status++;
        s->throttles = 77;
    } else if (request == LWP_IOC_ATTACH) {
        close(fds[1]);
    }
    return 0;
}

int poll(struct pollfd *p, nfds_t n, int timeout)
{
    int result = ((int (*)(struct pollfd *, nfds_t, int))
                  dlsym(RTLD_NEXT, "poll"))(p, n, timeout);

    for (nfds_t i = 0; i < n && fds[0] >= 0; i++) {
        hangups += p[i].fd == fds[0] && p[i].revents & POLLHUP;
    }
    return result;
}

__attribute__((destructor)) static void tell(void)
{
    if (status) {
        fprintf(stderr, "hangups: %u\n", hangups);
    }
}
"""


class Rr(Case):
    """Under rr, which does not record what LWP stores"""

    def test_refused(self):
        """lwp says so."""
        self.lwp('record', '--', 'true', status=1,
                 env={**os.environ, 'RUNNING_UNDER_RR': '1'})
        self.assertEqual(self.stderr, 'lwp record: cannot profile under rr, '
                         'which does not record what LWP stores\n')

    def test_not_profiled(self):
        """What a profiled program records is not profiled."""
        env = {**os.environ}
        env.pop('RUNNING_UNDER_RR', None)
        for name in 'RUNNING_UNDER_RR', 'ANOTHER':
            under_rr = name == 'RUNNING_UNDER_RR'
            self.lwp('record', '--', 'env', name + '=1',
                     *self.guest('loop', 1000), env=env, status=int(under_rr))
            self.assertEqual('nothing was profiled' in self.stderr, under_rr)


class Driver(Case):
    """What lwp makes of its driver; that itself is tested in guests."""

    def run_with(self, *args, **kind):
        linux = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             '../../guest/linux')
        driver = common.compile_c(self.path('driver.so'), DRIVER, '-shared',
                                  '-fPIC', '-w', '-ldl', '-I', linux)
        return self.lwp(*args, env={**os.environ, 'LD_PRELOAD': driver},
                        **kind)

    def test_info(self):
        """What the driver counts."""
        out = self.run_with('info', status=1)
        self.assertEqual(re.findall(r'(?m)^  (\w.*\w) +([1-9]\d*)$', out), [
            ('times that LWP was found off', '10'),
            ('tasks disabled for want of memory', '5'),
            ('times that interrupts were held back', '77')])
        driver = json.loads(self.run_with('info', '--json', status=1))['driver']
        self.assertEqual([driver[k] for k in ('heals', 'exhausted', 'throttles')],
                         [10, 5, 77])

    def test_lost(self):
        """That the driver lost somebody's state is told."""
        for command in 'record', 'stat':
            self.run_with(command, '--', *self.guest('loop', 1000))
            self.assertIn(f'lwp {command}: the driver had no memory to save '
                          'the state of 2 threads, perhaps of these: they '
                          'were not profiled any more\n', self.stderr)
            self.assertIn(f'lwp {command}: LWP was found off 3 times, perhaps '
                          'in these threads: counts may be too low\n',
                          self.stderr)

    def test_hangup(self):
        """When all have ended, there is nothing to be waited for."""
        self.run_with('record', '--', 'sh', '-c', '"$0" "$@"; sleep 3',
                      *self.guest('loop', 1000))
        self.assertRegex(self.stderr, r'hangups: [01]\n')


class Install(Case):
    def test_install(self):
        """It runs from where it is installed, and others can link to it."""
        build = os.path.dirname(Setup.lwp)
        root = self.path('root')
        r = subprocess.run(['ninja', '-C', build, 'install'], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           env={**os.environ, 'DESTDIR': root})
        self.assertEqual(r.returncode, 0, r.stdout)
        prefix = os.path.join(root, 'usr/local')
        installed = os.path.join(prefix, 'bin/lwp')
        self.assertTrue(os.path.exists(os.path.join(
            prefix, 'share/man/man1/lwp.1')))
        r = subprocess.run([installed, 'record', *EACH_BRANCH, '--',
                            *self.guest('loop', 1000)], cwd=self.folder,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(self.loops(), {(): 1000})
        if not shutil.which('pkg-config'):
            self.skipTest('pkg-config is not installed')
        path = next(path for path, _, names in os.walk(prefix)
                    if 'lwp.pc' in names)

        def ask(what):
            return subprocess.run(
                ['pkg-config', what, 'lwp'], check=True, text=True,
                env={**os.environ, 'PKG_CONFIG_PATH': path},
                stdout=subprocess.PIPE).stdout.strip()

        flags = ['-I' + root + ask('--variable=includedir'),
                 '-L' + root + ask('--variable=libdir'),
                 *ask('--libs-only-l').split()]
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                               '../../guest/tools/example.c')) as f:
            example = common.compile_c(self.path('linked'), f.read(), *flags)
        subprocess.run([*Setup.qemu(), example], check=True,
                       stdout=subprocess.DEVNULL)


class Example(Case):
    def test_example(self):
        example = os.path.join(os.path.dirname(Setup.lwp), 'example')
        if not os.path.exists(example):
            self.skipTest(f'there is no {example}')
        run = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        r = subprocess.run([*Setup.qemu(), example], **run)
        self.assertEqual((r.returncode, r.stderr), (0, ''))
        lines = re.findall(r'(\w+): (\d+) instructions, (\d+) branches, '
                           r'([\d.]+) % of (\d+) mispredicted, 0 records '
                           r'missed\n', r.stdout)
        self.assertEqual([line[0] for line in lines], ['random', 'sorted'])
        random, ordered = ([float(x) for x in line[1:]] for line in lines)
        self.assertEqual([r[3] for r in (random, ordered)],
                         [r[1] // 1009 for r in (random, ordered)])
        self.assertLess(ordered[0], random[0])
        self.assertLess(ordered[2], random[2])
        self.sentence = (f'{random[2]} % of random and {ordered[2]} % of '
                         'sorted branches are mispredicted')
        r = subprocess.run([*Setup.qemu(cpu='max,-lwp'), example], **run)
        self.assertEqual((r.returncode, r.stderr),
                         (1, 'example: this CPU has no LWP\n'))


class Library(Case):
    def test_profiled_callback(self):
        """lwp_drain() ends though its callback fills the ring."""
        folder = os.path.dirname(Setup.lwp)
        tools = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             '../../guest/tools')
        program = common.compile_c(self.path('drain'), r"""
            #include "lwp.h"
            static void look(const LwpRecord *r, void *count)
            {
                ++*(unsigned long *)count;
            }
            int main(void)
            {
                LwpOptions o = { .events = LWP_FLAG(LWP_IRE), .period = { 1, 1 },
                                 .records = 64 };
                LwpSession *s = lwp_open(&o);
                unsigned long count = 0;
                lwp_enable(s);
                for (volatile int i = 0; i < 1000; i++) { }
                return lwp_drain(s, look, &count) != count || count < 63;
            }""", '-I', tools, os.path.join(folder, 'liblwp.a'))
        subprocess.run([*Setup.qemu(), program], check=True, timeout=20)


class Page(Case):
    def test_commands(self):
        """Every command of docs/profiling.md does what it is there for."""
        page = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                            '../../docs/profiling.md')
        with open(page) as f:
            text = f.read()
        for name, source in re.findall(r'(?s)```c (\S+)\n(.*?)```', text):
            with open(self.path(name), 'w') as f:
                f.write(source)
        folders = [os.path.dirname(Setup.lwp), Setup.build]
        env = {**os.environ, 'HOME': self.folder,
               'PATH': ':'.join([*folders, os.environ['PATH']])}
        outs, missing = {}, set()
        commands = re.findall(r'(?m)^ {4}\$ (.*)$', text)
        for command in commands:
            tool = command.split()[0]
            if not shutil.which(tool, path=env['PATH']):
                missing.add(tool)
                continue
            r = subprocess.run(command, shell=True, cwd=self.folder, env=env,
                               text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               timeout=120)
            self.assertEqual(r.returncode, 0, command + ': ' + r.stderr)
            outs[command] = r.stdout
            if tool == 'lwp' and command.split()[1] in ('report', 'annotate'):
                self.assertNotIn('there are no', r.stderr)
                self.assertEqual(bool(r.stdout), '--svg' not in command and
                                 '--html' not in command)
        self.assertLessEqual(missing, {'perf', 'go'})
        # What the page says of the program, in its own words.
        functions = next(o for c, o in outs.items() if c == 'lwp report')
        self.assertRegex(functions, r'ire: functions\n(#.*\n)+ +\S+% +\d+ +'
                         r'rows +count\n')
        self.assertRegex(next(o for c, o in outs.items() if 'symbol,source ' in
                              c), r'\n +8\d\.\d+% .* columns +L3\n')
        self.assertNotIn(' L3', next(o for c, o in outs.items() if
                                     'slow.data -s' in c))
        for picture in 'rows.svg', 'rows.html':
            self.assertGreater(os.path.getsize(self.path(picture)), 10000)
        self.sentence = f'{len(outs)} commands of {len(commands)}'


class Manual(Case):
    """Options of --help and of the man page are the same."""

    @staticmethod
    def flags(lines):
        found = set()
        for line in lines:
            for part in re.findall(r'\bFl ((?:[^A-Z:]|I(?= ,))*)', line):
                for word in re.split(r'[ ,|]+', part):
                    if word.startswith('-') and len(word) > 1:
                        found.add('-' + word)
                    elif re.fullmatch(r'[a-zI]+', word):
                        found.update('-' + letter for letter in word)
        return found

    def test_options(self):
        page = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                            '../../guest/tools/lwp.1')
        with open(page) as f:
            text = f.read()
        synopsis = re.search(r'(?s)\.Sh SYNOPSIS\n(.*?)\n\.Sh ', text)[1]
        commands = re.findall(r'(?m)^  (\w+)  ', self.lwp('--help'))
        self.assertEqual(sorted(commands), sorted(re.findall(
            r'(?m)^\.Ss lwp (\w+)$', text)))
        common_options = re.search(r'(?s)\n\.Sh DESCRIPTION\n(.*?)\n\.Ss ',
                                   text)[1].split('\n')
        number = 0
        for command in commands:
            section = re.search(rf'(?s)\n\.Ss lwp {command}\n(.*?)\n\.S[sh] ',
                                text)[1].split('\n')
            # Names of one option are a group.
            groups = [set(re.findall(r'--?[a-zI][a-z-]*', names))
                      for names in re.findall(
                          r'(?m)^ {2,6}(-.*?)(?:  |\[|$)',
                          self.lwp(command, '--help'))]
            items = self.flags(li for li in section if li.startswith('.It '))
            mentioned = self.flags(li for li in section + common_options
                                   if not li.startswith('.It '))
            for group in groups:
                self.assertTrue(group <= items | mentioned or
                                group & mentioned,
                                f'{command}: {group} not in lwp.1')
            part = re.search(rf'(?s)\.Nm lwp {command}\b(.*?)(?:\.Nm|\Z)',
                             synopsis)[1].split('\n')
            self.assertEqual((items | self.flags(part)) - set().union(*groups),
                             set(), f'{command}: not in --help')
            number += len(groups)
        self.sentence = f'{number} options of {len(commands)} commands'


if __name__ == '__main__':
    common.main(__doc__)
