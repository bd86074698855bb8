# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests of lwp share: it runs, and a line tells of each test."""
import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

# Whoever runs this may ignore them, for example in the background of a shell.
for number in signal.SIGHUP, signal.SIGQUIT:
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


class Setup:
    """What the command line says."""
    lwp = build = None

    @classmethod
    def qemu(cls, bits=64, cpu='max,+lwp', options=()):
        """The start of a command that runs a program."""
        name = 'qemu-x86_64' if bits == 64 else 'qemu-i386'
        return [os.path.join(cls.build, name), '-cpu', cpu, *options]

    @classmethod
    def plugin(cls, name):
        for folder in 'tests/tcg/plugins', 'contrib/plugins':
            path = os.path.join(cls.build, folder, f'lib{name}.so')
            if os.path.exists(path):
                return path
        raise unittest.SkipTest(f'the plugin {name} is not built')


def compile_c(path, source, *flags):
    """Compile C from a text.  What cannot be compiled is skipped."""
    with open(path + '.c', 'w') as f:
        f.write(source)
    r = subprocess.run(['gcc', '-g', '-fcf-protection=none', '-o', path,
                        path + '.c', *flags], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
    if r.returncode and '-m32' in flags:
        raise unittest.SkipTest('no 32-bit compiler')
    if r.returncode:
        raise RuntimeError(r.stdout)
    return path


@functools.cache
def compile_once(name, *args):
    """The same, in a folder for all tests."""
    return compile_c(os.path.join(shared_folder(), name), *args)


@functools.cache
def shared_folder():
    folder = tempfile.mkdtemp(prefix='lwp-test-')
    atexit.register(shutil.rmtree, folder)
    return folder


class Case(unittest.TestCase):
    """Tests with a folder of their own, in which lwp runs."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix='lwp-test-')
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def setUp(self):
        self.sentence = None

    def path(self, name):
        return os.path.join(self.folder, name)

    def lwp(self, *args, status=0, **kind):
        """Its standard output; what it says else is in stderr then."""
        r = subprocess.run([Setup.lwp, *args], cwd=self.folder, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           timeout=120, **kind)
        self.stderr = r.stderr
        self.assertEqual(r.returncode, status, r.stderr)
        return r.stdout

    def json(self, *args):
        whole = json.loads(self.lwp('report', '--json', *args))
        return whole, {e['event']: e for e in whole['events']}

    def functions(self, event):
        return {(os.path.basename(r['dso']), r['symbol']): r['records']
                for r in event['functions']}


class Result(unittest.TextTestResult):
    def line(self, test, result, text):
        name = test.id().split('.', 1)[-1]
        print(f'{result} {name}' + (f': {text}' if text else ''), flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.line(test, 'PASS', getattr(test, 'sentence', None) or
                  test.shortDescription())

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line(test, 'SKIP', reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line(test, 'FAIL', str(err[1]).strip().split('\n')[-1])

    addError = addFailure


def main(usage, needs_qemu=True):
    """LWP [QEMU-BUILD-DIR] and what unittest takes, the names of tests."""
    args = sys.argv[1:]
    if len(args) < 1 + needs_qemu:
        sys.exit(usage)
    Setup.lwp = os.path.abspath(args.pop(0))
    if needs_qemu:
        Setup.build = os.path.abspath(args.pop(0))
    unittest.main(argv=sys.argv[:1] + args,
                  testRunner=unittest.TextTestRunner(resultclass=Result,
                                                     verbosity=0))
