package org.apache.storm.shade.org.apache.zookeeper.client;

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * The servers of ZooKeeper, in turn.
 *
 * The class of this name in Storm 1.2 takes the host out of the text of an address, which newer versions of Java write
 * in another way (ZOOKEEPER-3779). So Storm 1.2 does not start with them. This class replaces it.
 */
public final class StaticHostProvider implements HostProvider {
    private final List<InetSocketAddress> servers = new ArrayList<>();
    private int last = -1;

    public StaticHostProvider(Collection<InetSocketAddress> addresses) {
        for (InetSocketAddress address : addresses) {
            servers.add(new InetSocketAddress(address.getHostString(), address.getPort()));
        }
    }

    @Override
    public int size() {
        return servers.size();
    }

    @Override
    public InetSocketAddress next(long spinDelay) {
        if (last >= 0 && spinDelay > 0) {
            try {
                Thread.sleep(spinDelay);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }
        last = (last + 1) % servers.size();
        return servers.get(last);
    }

    @Override
    public void onConnected() {}
}
