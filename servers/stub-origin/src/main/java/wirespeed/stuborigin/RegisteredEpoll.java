/** Netty's epoll, in which a socket stays registered while nothing is asked of it. */
package wirespeed.stuborigin;

import io.netty.channel.IoHandle;
import io.netty.channel.IoHandler;
import io.netty.channel.IoHandlerContext;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.IoOps;
import io.netty.channel.IoRegistration;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollIoOps;
import io.netty.util.concurrent.ThreadAwareExecutor;

/**
 * Netty 4.2 (until 4.2.20 at least) removes a socket from epoll when it is to report nothing
 * (netty#16689), but does not add it again: the next request fails with ENOENT, and Netty closes
 * the socket. That happens to a socket whose input has ended when it fills, and to one that was
 * paused when its input ended. Here it stays, and reports only errors and hangups, each once.
 */
record RegisteredEpoll(IoHandlerFactory factory) implements IoHandlerFactory {
    private static final EpollIoOps ERRORS_ONCE = EpollIoOps.EPOLLERR.with(EpollIoOps.EPOLLET);

    static IoHandlerFactory newFactory() {
        return new RegisteredEpoll(EpollIoHandler.newFactory());
    }

    @Override
    public IoHandler newHandler(ThreadAwareExecutor executor) {
        return new Handler(factory.newHandler(executor));
    }

    @Override
    public boolean isChangingThreadSupported() {
        return factory.isChangingThreadSupported();
    }

    private record Handler(IoHandler epoll) implements IoHandler {
        @Override
        public void initialize() {
            epoll.initialize();
        }

        @Override
        public int run(IoHandlerContext context) {
            return epoll.run(context);
        }

        @Override
        public void prepareToDestroy() {
            epoll.prepareToDestroy();
        }

        @Override
        public void destroy() {
            epoll.destroy();
        }

        @Override
        public IoRegistration register(IoHandle handle) throws Exception {
            return new Registration(epoll.register(handle));
        }

        @Override
        public void wakeup() {
            epoll.wakeup();
        }

        @Override
        public boolean isCompatible(Class<? extends IoHandle> type) {
            return epoll.isCompatible(type);
        }
    }

    private static final class Registration implements IoRegistration {
        private final IoRegistration epoll;
        /** Before its first request a socket is not in epoll, and need not be. */
        private boolean isAdded;

        Registration(IoRegistration epoll) {
            this.epoll = epoll;
        }

        @Override
        public <T> T attachment() {
            return epoll.attachment();
        }

        @Override
        public long submit(IoOps ops) {
            if (!EpollIoOps.NONE.equals(ops)) {
                isAdded = true;
                return epoll.submit(ops);
            }
            return epoll.submit(isAdded ? ERRORS_ONCE : ops);
        }

        @Override
        public boolean isValid() {
            return epoll.isValid();
        }

        @Override
        public boolean cancel() {
            return epoll.cancel();
        }
    }
}
