#!/usr/bin/perl
# Stands in for QEMU where only its process, its files and its sockets matter: agrees on QMP, says that the device state was
# loaded, listens on the agent's socket, and sleeps. Runs no guest.
use strict;
use warnings;
use IO::Socket::UNIX;

my ($agent) = map { /^socket,id=agent,path=([^,]+)/ ? $1 : () } @ARGV;
my $listener = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => $agent, Listen => 1) or die "cannot listen on $agent: $!\n";
open(my $qmp, '+<&=', 4) or die "no control channel: $!\n";
my $say = sub { syswrite($qmp, "$_[0]\r\n") };
$say->('{"QMP": {"version": {}, "capabilities": []}}');
my $buffer = '';
while (sysread($qmp, $buffer, 65536, length $buffer)) {
  while ($buffer =~ s/^(.*)\n//) {
    my $line = $1;
    my ($id) = $line =~ /"id":(\d+)/;
    $say->(qq({"return": {}, "id": $id})) if defined $id;
    $say->('{"event": "MIGRATION", "data": {"status": "completed"}}') if $line =~ /"migrate-incoming"/;
  }
}
